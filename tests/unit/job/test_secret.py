"""The secret that a job's tasks share."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.job import secret
from trainer.job.errors import Exit, UserError


def test_a_new_secret_is_readable_by_its_owner_only_and_is_kept_while_a_task_uses_it(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    secret.keep(file)
    first = file.read_text()
    assert len(first) >= 32
    assert file.stat().st_mode & 0o777 == 0o400
    program = (
        "import os, sys; from trainer.job import secret\n"
        "print(secret.take({'TRAINER_SECRET_FILE': sys.argv[1]}).decode(), flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as task:
        assert task.stdout is not None
        assert task.stdout.readline().strip() == first
        secret.keep(file)
        assert file.read_text() == first
        task.kill()
    secret.keep(file)  # the next run
    assert file.read_text() != first
    assert [each.name for each in tmp_path.iterdir()] == ["secret"]


def test_each_is_another(tmp_path: Path) -> None:
    for name in ("a", "b"):
        secret.keep(tmp_path / name)
    assert (tmp_path / "a").read_text() != (tmp_path / "b").read_text()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"nowhere/secret: the job's secret cannot be written: No such file"):
        secret.keep(tmp_path / "nowhere" / "secret")


def test_another_owner_gets_the_file_and_the_folders(tmp_path: Path) -> None:
    """As root does it for a container's user; here the owner is the same, so that anyone may."""
    file, runs = tmp_path / "secret", tmp_path / "runs"
    runs.mkdir()
    secret.keep(file, os.getuid(), [runs])
    assert file.read_text()
    with pytest.raises(UserError, match=r"nowhere: cannot be given to user \d+: No such file"):
        secret.keep(file, os.getuid(), [tmp_path / "nowhere"])


@pytest.mark.skipif(os.getuid() != 0 or not shutil.which("setpriv"), reason="needs root, and setpriv(1)")
def test_root_without_other_capabilities_gives_them_away_at_each_run(tmp_path: Path) -> None:
    """As in a container of compose."""
    file, runs = tmp_path / "run" / "secret", tmp_path / "runs"
    file.parent.mkdir()
    runs.mkdir()
    program = "import sys; from pathlib import Path; from trainer.job import secret\n"
    program += "secret.keep(Path(sys.argv[1]), 1234, [Path(sys.argv[2])])"
    command = ["setpriv", "--bounding-set=-all,+chown", sys.executable, "-c", program, str(file), str(runs)]
    values = []
    for _ in range(2):
        subprocess.run(command, check=True)
        assert [each.stat().st_uid for each in (file, file.parent, runs)] == [1234] * 3
        values.append(file.read_text())
    assert values[0] != values[1]


def test_it_comes_from_the_environment_or_a_file_and_is_taken_out(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"\n 1f2e \xff\n")
    for environ, value in (
        ({}, b""),
        ({"TRAINER_SECRET": " 3d4c\n"}, b"3d4c"),
        ({"TRAINER_SECRET_FILE": str(tmp_path / "secret")}, b"1f2e \xff"),
        ({"TRAINER_SECRET": "3d4c", "TRAINER_SECRET_FILE": "/nowhere"}, b"3d4c"),
        ({"TRAINER_SECRET_FOLDER": str(tmp_path)}, b"1f2e \xff"),
        ({"TRAINER_SECRET_FOLDER": str(tmp_path / "empty")}, b""),
    ):
        given = {"PATH": "/bin", **environ}
        assert secret.take(given) == value
        assert given == {"PATH": "/bin"}


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("TRAINER_SECRET", " \n", ": is empty"),
        ("TRAINER_SECRET_FILE", "", ": '': cannot be read: Is a directory"),
        ("TRAINER_SECRET_FILE", "/nowhere/secret", ": '/nowhere/secret': cannot be read: No such file or directory"),
        ("TRAINER_SECRET_FILE", "/dev/null", ": '/dev/null': is empty"),
        ("TRAINER_SECRET_FILE", "a\0b", ": 'a\\x00b': cannot be read: embedded null byte"),
    ],
)
def test_one_that_is_promised_and_not_there_is_reported(name: str, value: str, problem: str) -> None:
    with pytest.raises(UserError) as caught:
        secret.take({name: value})
    assert caught.value.code is Exit.USER
    assert str(caught.value).startswith(f"{name}{problem}")
