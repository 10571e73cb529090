"""Folders that somebody else has made: their files are read if they are regular, and up to a length."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.job.errors import UserError
from trainer.model_dir import checkpoint, history, journal, layout, lease, regular
from trainer.model_dir import state as job_state
from trainer.model_dir.arrays import DamagedError
from trainer.model_dir.arrays import read as read_arrays
from trainer.model_dir.files import is_locked, read_json

SECRET = '{"phase": "hunter2"}\n'


def pipe(path: Path, _: Path) -> None:
    os.mkfifo(path)


def link(path: Path, secret: Path) -> None:
    path.symlink_to(secret)


def device(path: Path, _: Path) -> None:
    path.symlink_to("/dev/zero")


def folder(path: Path, _: Path) -> None:
    path.mkdir()


def endless(path: Path, _: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


HOSTILE: list[Callable[[Path, Path], None]] = [pipe, link, device, folder, endless]


@pytest.fixture(params=HOSTILE, ids=lambda each: each.__name__)
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A model_dir in which nothing is what it should be."""
    secret, found = tmp_path / "secret.json", tmp_path / "runs"
    secret.write_text(SECRET)
    layout.logs(found).mkdir(parents=True)
    (found / "checkpoints" / "step-00000001").mkdir(parents=True)
    places = (layout.result, layout.state, layout.lock, layout.lease, layout.history, layout.journal, layout.spec,
              layout.metrics, layout.evaluation, layout.mlflow)  # fmt: skip
    for path in (
        *(place(found) for place in places), layout.logs(found) / "output.log", layout.logs(found) / "worker-0.log",
        *(found / "checkpoints" / "step-00000001" / name for name in ("meta.json", "variables.npz")),
    ):  # fmt: skip
        request.param(path, secret)
    return str(found)


def test_what_is_read_of_it_is_as_if_it_were_not_there(hostile: str) -> None:
    assert read_json(layout.result(hostile)) == {}
    assert journal.read(hostile) == []
    assert lease.read(hostile).number == 0
    assert job_state.load(hostile, 5.0).started == 5.0
    assert checkpoint.newest(hostile) is None
    assert not is_locked(layout.lock(hostile))
    with pytest.raises(DamagedError):
        list(read_arrays(checkpoint.folder(hostile) / "step-00000001" / "variables.npz", ""))


def test_a_chief_does_not_write_through_it(hostile: str) -> None:
    before = Path(hostile).with_name("secret.json").read_text()
    if not layout.lock(hostile).is_file() or layout.lock(hostile).is_symlink():
        with pytest.raises(UserError, match=r"cannot be written: (is a link|is no regular|Is a dir|No such device)"):
            job_state.lock(hostile)
        with pytest.raises(OSError, match=r"is a link|is no regular|Is a directory|No such device|pipe"):
            journal.append(hostile, 1, [{"kind": "x"}])
        with pytest.raises(ValueError, match="cannot be read"):
            history.load(hostile)
    assert Path(hostile).with_name("secret.json").read_text() == before == SECRET


COMMANDS = (["status"], ["logs"], ["result"], ["debug"])


def test_commands_end_and_show_nothing_of_what_it_leads_to(hostile: str, tmp_path: Path) -> None:
    for words in COMMANDS:
        archive = ["--output", str(tmp_path / "archive")] if words == ["debug"] else []
        command = [sys.executable, "-m", "trainer", *words, hostile, *archive]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "Traceback" not in ended.stderr
        assert "hunter2" not in ended.stdout + ended.stderr
    page = subprocess.run([sys.executable, "-c", PAGE, hostile], capture_output=True, timeout=60, check=True)
    assert b"hunter2" not in page.stdout
    assert json.loads(page.stdout.splitlines()[0]) is not None


PAGE = """
import asyncio, sys
from trainer.page.files import FilesPage
from trainer.page.lines import LogQuery
page = FilesPage(sys.argv[1])
print(asyncio.run(page.state()))
print(asyncio.run(page.logs(LogQuery())))
"""


def test_a_folder_of_logs_that_leads_out_is_not_read(tmp_path: Path) -> None:
    from trainer.page.files import FilesPage
    from trainer.page.lines import LogQuery
    from trainer.targets.local import output

    (tmp_path / "elsewhere").mkdir()
    for name in ("output.log", "worker-0.log"):
        (tmp_path / "elsewhere" / name).write_text("2026-01-01T00:00:00.000Z worker:0    | hunter2\n")
    (tmp_path / "runs").mkdir()
    (layout.make_own(tmp_path / "runs") / "logs").symlink_to(tmp_path / "elsewhere")
    found = asyncio.run(FilesPage(str(tmp_path / "runs")).logs(LogQuery()))
    assert "hunter2" not in found
    with pytest.raises(UserError, match="its folder is a link that leads out of model_dir"):
        list(output.lines(str(tmp_path / "runs"), lambda: False))
    assert regular.is_inside(tmp_path / "elsewhere" / "output.log", tmp_path)


def test_figures_that_are_not_finite_are_null_on_the_page(tmp_path: Path) -> None:
    from trainer.page.files import FilesPage

    (layout.make_own(tmp_path) / "result.json").write_text(
        '{"status": "succeeded", "test_loss": NaN, "steps": Infinity, "events": [{"time": NaN, "text": "x"}],'
        ' "compatibility_key": {}, "seconds": -Infinity}'
    )
    rows = ('{"step": NaN, "time": 1.0, "loss": 1}', '{"step": 2, "time": 2.0, "loss": NaN, "x": 1e999}')
    for place in (layout.metrics, layout.evaluation):
        place(tmp_path).write_text("".join(f"{row}\n" for row in (*rows, f'{{"step": 1{"0" * 400}, "time": 3.0}}')))
    text = asyncio.run(FilesPage(str(tmp_path)).state())
    assert json.loads(text, parse_constant=pytest.fail)["status"]["step"] is None


def test_a_link_in_place_of_trainer_s_own_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    for name in (layout.RESULT, layout.STATE, layout.HISTORY, layout.JOURNAL):
        (tmp_path / "elsewhere" / name).write_text(SECRET)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / layout.OWN).symlink_to(tmp_path / "elsewhere")
    assert read_json(layout.result(tmp_path / "run")) == {}
    assert journal.read(str(tmp_path / "run")) == []
    with pytest.raises(UserError, match="cannot be written: is a link, which is not followed"):
        job_state.lock(str(tmp_path / "run"))
    assert sorted(path.read_text() for path in (tmp_path / "elsewhere").iterdir()) == [SECRET] * 4
