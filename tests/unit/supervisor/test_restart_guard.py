"""After a permanent failure each restart by Docker exits at once with the same code; then the note is removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainer.job import environment
from trainer.job.errors import Exit
from trainer.supervisor import restart_guard


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(environment.RESTARTS, "2")
    return tmp_path / "worker-1.log"


def test_as_often_as_docker_restarts_it_and_no_more(log: Path) -> None:
    assert restart_guard.repeat_failure(log) is None
    restart_guard.remember(log, Exit.DIVERGED)
    assert [restart_guard.repeat_failure(log) for _ in range(4)] == [Exit.DIVERGED, Exit.DIVERGED, None, None]


@pytest.mark.parametrize("code", [Exit.OK, Exit.STOPPED, Exit.CHIEF_LOST])
def test_not_what_may_fare_better(log: Path, code: Exit) -> None:
    restart_guard.remember(log, code)
    assert restart_guard.repeat_failure(log) is None


def test_not_later(log: Path) -> None:
    restart_guard.remember(log, Exit.USER)
    (note,) = log.parent.iterdir()
    old = json.loads(note.read_text())
    note.write_text(json.dumps({**old, "time": old["time"] - restart_guard.RECENT_SECONDS - 1}))
    assert restart_guard.repeat_failure(log) is None


def test_there_is_no_note_where_no_engine_restarts_containers(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(environment.RESTARTS)
    restart_guard.remember(log, Exit.USER)
    assert list(log.parent.iterdir()) == []


@pytest.mark.usefixtures("unprivileged")
def test_a_full_disk_takes_the_note_and_its_changes(log: Path) -> None:
    """As where no new file can be made."""
    assert restart_guard.repeat_failure(log) is None
    (note,) = log.parent.iterdir()
    size = note.stat().st_size
    log.parent.chmod(0o555)
    restart_guard.remember(log, Exit.USER)
    assert [restart_guard.repeat_failure(log) for _ in range(3)] == [Exit.USER, Exit.USER, None]
    assert note.stat().st_size == size
    json.loads(note.read_text())
    log.parent.chmod(0o755)


def test_a_success_leaves_no_note(log: Path) -> None:
    assert restart_guard.repeat_failure(log) is None
    restart_guard.remember(log, Exit.OK)
    assert list(log.parent.iterdir()) == []
