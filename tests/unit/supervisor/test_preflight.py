"""Checks before a task starts, and the code that it unpacks."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import time
from pathlib import Path

import pytest

from trainer.job import code
from trainer.job.cluster import Task, tasks_of
from trainer.job.errors import UserError
from trainer.job.load import build
from trainer.model_dir import layout
from trainer.supervisor import preflight


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(code, "PLACE", str(tmp_path / "code"))
    monkeypatch.setenv("TRAINER_CODE", str(tmp_path / "code.tar.gz"))
    return tmp_path / "code"


def test_packed_code_is_unpacked_as_it_was(tmp_path: Path, place: Path) -> None:
    project = tmp_path / "project"
    (project / "lib").mkdir(parents=True)
    (project / "model.py").write_text("import lib\n")
    (project / "lib/words.txt").write_bytes(b"\xff\x00")
    spec = {"name": "j", "strategy": "one_device"}
    there = build({**spec, "workload": str(project / "model.py"), "code": str(project)})
    (tmp_path / "code.tar.gz").write_bytes(code.pack(there))
    preflight.unpack_code()
    here = build({**spec, "workload": str(place / "model.py"), "code": str(place)})
    assert [*code.files(here)] == ["lib/words.txt", "model.py"]
    assert code.digests(here) == code.digests(there)
    preflight.unpack_code()  # as a container that is restarted does


def test_an_archive_that_cannot_be_unpacked_is_named(tmp_path: Path, place: Path) -> None:
    with pytest.raises(
        UserError, match=f"^code: {tmp_path}/code.tar.gz: cannot be unpacked to {place}: .*No such file"
    ):
        preflight.unpack_code()
    (tmp_path / "code.tar.gz").write_bytes(b"no archive")
    with pytest.raises(UserError, match=r"cannot be unpacked to .*: (not a gzip file|file could not be opened)"):
        preflight.unpack_code()


def test_without_an_archive_nothing_is_unpacked(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRAINER_CODE")
    preflight.unpack_code()
    assert not place.exists()


def task_of(port: int) -> Task:
    return tasks_of(build({"name": "j", "strategy": "one_device"}), lambda *_: f"127.0.0.1:{port}")[0]


def test_a_port_that_a_killed_process_still_holds_is_waited_for() -> None:
    with socket.create_server(("", 0)) as held:
        port = held.getsockname()[1]

        async def wait() -> None:
            asyncio.get_running_loop().call_later(0.3, held.close)
            await preflight.until_port_is_free(task_of(port))

        asyncio.run(wait())
        assert held.fileno() == -1


def test_a_port_that_another_program_holds_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "PORT_SECONDS", 0.1)
    began = time.monotonic()
    with socket.create_server(("", 0)) as held:
        port = held.getsockname()[1]
        with pytest.raises(UserError, match=rf"port {port} \(TensorFlow port of worker:0\) cannot be used: Address"):
            asyncio.run(preflight.until_port_is_free(task_of(port)))
    assert time.monotonic() - began >= 0.1


def test_where_the_volume_is_not_accessible_a_log_is_in_a_folder_that_nobody_can_have_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    spec = build({"name": "j", "strategy": "one_device", "workload": "digits", "model_dir": str(tmp_path / "run")})
    (task,) = tasks_of(spec)
    log = preflight.log_file(spec, task)
    assert log.parent == layout.logs(tmp_path / "run")
    (tmp_path / "blocked").write_text("no folder")
    blocked = build(
        {"name": "j", "strategy": "one_device", "workload": "digits", "model_dir": str(tmp_path / "blocked")}
    )
    kept = tmp_path / "kept"
    kept.write_text("")
    (tmp_path / "trainer-logs").mkdir()
    (tmp_path / "trainer-logs" / log.name).symlink_to(kept)
    elsewhere = preflight.log_file(blocked, task)
    assert (elsewhere.name, elsewhere.parent.parent, elsewhere.exists()) == (log.name, tmp_path, True)
    assert elsewhere.resolve() != kept
    assert preflight.log_file(blocked, task) != elsewhere, "each start makes a new one"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "blocked"))
    assert preflight.log_file(blocked, task) == Path(os.devnull)
