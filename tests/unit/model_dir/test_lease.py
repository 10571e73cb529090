"""The lease of model_dir: the last chief that took it may write, and the one before notices."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from trainer.job import environment
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.model_dir import checkpoint, layout, lease

HERE, ELSEWHERE = "boot 1", "boot 2"


def test_the_last_chief_that_took_it_has_it(tmp_path: Path) -> None:
    folder = str(tmp_path)
    numbers = [lease.take(folder, name, "a run", HERE).number for name in ("old", "new")]
    assert numbers == [1, 2]
    assert lease.is_held(folder, "new")
    assert not lease.renew(folder, "old")
    with pytest.raises(TrainerError) as caught:
        lease.require(folder, "old")
    assert caught.value.code == Exit.REPLACED
    lease.require(folder, "new")


def test_the_number_increases_over_the_end_of_a_job(tmp_path: Path) -> None:
    folder = str(tmp_path)
    lease.take(folder, "first", "a run", HERE)
    lease.release(folder, "first")
    assert not lease.is_held(folder, "first")
    assert lease.take(folder, "second", "another run", ELSEWHERE).number == 2


def test_a_chief_that_was_replaced_does_not_release_the_lease_of_its_successor(tmp_path: Path) -> None:
    folder = str(tmp_path)
    lease.take(folder, "old", "a run", HERE)
    lease.take(folder, "new", "a run", ELSEWHERE)
    lease.release(folder, "old")
    assert lease.is_held(folder, "new")


def test_a_lease_whose_folder_was_deleted_is_held_by_nobody(tmp_path: Path) -> None:
    lease.take(str(tmp_path), "old", "", HERE)
    layout.lease(tmp_path).unlink()
    assert not lease.is_held(str(tmp_path), "old")


@pytest.mark.parametrize("content", ["", "{", '{"number": "x"}', "[1]"])
def test_a_damaged_lease_is_taken(tmp_path: Path, content: str) -> None:
    layout.lease(tmp_path).write_text(content)
    assert lease.take(str(tmp_path), "new", "", HERE).number == 1


@pytest.mark.parametrize("works", [True, False])
def test_a_chief_of_another_run_on_another_machine_is_replaced_only_if_it_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: bool
) -> None:
    monkeypatch.setattr(lease, "FREE_SECONDS", 2.0)
    folder, over = str(tmp_path), threading.Event()
    lease.take(folder, "old", "a run", HERE)

    def renew() -> None:
        while works and not over.wait(0.1):
            lease.renew(folder, "old")

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        if works:
            with pytest.raises(UserError, match="another job is using it, on another machine"):
                lease.take(folder, "new", "another run", ELSEWHERE)
        else:
            assert lease.take(folder, "new", "another run", ELSEWHERE).number == 2
    finally:
        over.set()
        thread.join()


def test_a_chief_of_the_same_run_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: pytest.fail("it waits"))
    lease.take(str(tmp_path), "old", "a run", HERE)
    assert lease.take(str(tmp_path), "new", "a run", ELSEWHERE).number == 2


def test_the_child_of_a_chief_that_was_replaced_completes_no_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"w": np.zeros(3)}
    lease.take(str(tmp_path), "old", "", HERE)
    monkeypatch.setenv(environment.LEASE, lease.holder(str(tmp_path), "old"))
    for folder in (tmp_path, layout.best(tmp_path)):
        checkpoint.save(folder, 1, values, {})
    lease.take(str(tmp_path), "new", "", HERE)
    with pytest.raises(TrainerError, match="another chief has taken this one's place"):
        checkpoint.save(tmp_path, 2, values, {})
    for folder in (tmp_path, layout.best(tmp_path)):
        assert [path.name for path in layout.checkpoints(folder).iterdir()] == ["step-00000001"]
