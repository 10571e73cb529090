"""The lease of model_dir: the last chief that took it may write, and the one before notices."""

import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

from trainer import clocks
from trainer.job import environment
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.model_dir import arrays, checkpoint, layout, lease
from trainer.model_dir.files import write_json
from trainer.model_dir.lease import Lease, Predecessor

HERE, ELSEWHERE = "boot 1", "boot 2"


def test_the_last_chief_that_took_it_has_it(tmp_path: Path) -> None:
    folder = str(tmp_path)
    old, new = (lease.take(folder, name, "a run", HERE) for name in ("old", "new"))
    assert old.number < new.number
    assert lease.is_held(folder, "new")
    assert not lease.renew(folder, old)
    with pytest.raises(TrainerError, match="another chief has taken this one's place") as caught:
        lease.require(folder, "old")
    assert caught.value.code == Exit.REPLACED
    lease.require(folder, "new")


def test_a_lease_given_back_keeps_its_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "pause", lambda _: pytest.fail("it waits"))
    folder = str(tmp_path)
    first = lease.take(folder, "first", "a run", HERE)
    lease.release(folder, first)
    assert lease.read(folder) == Lease(first.number, "first", "a run", HERE, released=True)
    monkeypatch.setattr(clocks, "wall", lambda: 0.0)
    assert lease.take(folder, "second", "another run", ELSEWHERE).number == first.number + 1
    assert not lease.is_held(folder, "first")


def test_a_chief_that_was_replaced_does_not_release_the_lease_of_its_successor(tmp_path: Path) -> None:
    folder = str(tmp_path)
    old = lease.take(folder, "old", "a run", HERE)
    new = lease.take(folder, "new", "a run", ELSEWHERE)
    lease.release(folder, old)
    assert lease.read(folder) == new


@pytest.mark.parametrize("emptied", [False, True])
def test_a_write_does_not_overwrite_the_lease_of_a_successor_that_takes_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, emptied: bool
) -> None:
    """The successor comes after the last look at the lease, before the write."""
    folder = str(tmp_path)
    old = lease.take(folder, "old", "a run", HERE)
    taken = list[Lease]()

    def takes() -> bool:
        if not taken:
            taken.append(Lease())
            taken[0] = lease.take(folder, "new", "a run", ELSEWHERE)
        return True

    if emptied:
        layout.lease(tmp_path).unlink()
        monkeypatch.setattr(Path, "is_dir", lambda _: takes())
    else:
        monkeypatch.setattr(lease, "is_held", lambda _, incarnation, *_more: incarnation == "new" or takes())
    lease.release(folder, old)
    assert lease.read(folder) == taken[0]


def test_a_lease_that_a_program_deleted_is_written_again(tmp_path: Path) -> None:
    mine = lease.take(str(tmp_path), "mine", "", HERE)
    layout.lease(tmp_path).unlink()
    assert lease.is_held(str(tmp_path), "mine")
    assert not layout.lease(tmp_path).exists()
    assert lease.renew(str(tmp_path), mine)
    assert lease.read(str(tmp_path)) == mine


def test_a_folder_that_a_program_deleted_is_left_for_it_to_make(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    mine = lease.take(str(folder), "mine", "", HERE)
    shutil.rmtree(folder)
    assert lease.renew(str(folder), mine)
    assert not folder.exists()
    folder.mkdir()
    assert lease.renew(str(folder), mine)
    assert lease.read(str(folder)) == mine


def test_the_number_increases_after_a_program_has_emptied_the_folder(tmp_path: Path) -> None:
    before = lease.take(str(tmp_path), "before", "a run", HERE)
    layout.lease(tmp_path).unlink()
    assert lease.take(str(tmp_path), "after", "a run", HERE).number > before.number


def test_a_lease_that_cannot_be_read_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = lease.take(str(tmp_path), "mine", "", HERE)

    def fails(path: Path) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "read_bytes", fails)
    assert lease.is_held(str(tmp_path), "mine")
    assert lease.renew(str(tmp_path), mine)


@pytest.mark.parametrize("content", ["", "{", '{"number": "x"}', "[1]", "x" * 1000])
def test_a_damaged_lease_is_taken_and_written_again(tmp_path: Path, content: str) -> None:
    mine = lease.take(str(tmp_path), "mine", "", HERE)
    (layout.make_own(tmp_path) / "lease.json").write_text(content)
    assert lease.renew(str(tmp_path), mine)
    assert lease.read(str(tmp_path)) == mine
    (layout.make_own(tmp_path) / "lease.json").write_text(content)
    assert lease.take(str(tmp_path), "new", "", HERE).number > mine.number


def test_of_two_chiefs_that_take_it_at_the_same_time_one_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path)
    write, second = write_json, list[str]()

    def both(path: Path, value: dict[str, object], **_: object) -> None:
        write(path, value)
        if not second:
            second.append("")
            second.append(lease.take(folder, "second", "a run", HERE).incarnation)

    monkeypatch.setattr(lease, "write_json", both)
    with pytest.raises(TrainerError) as caught:
        lease.take(folder, "first", "a run", HERE)
    assert caught.value.code == Exit.REPLACED
    assert lease.is_held(folder, "second")


@contextmanager
def renewed(folder: str, mine: Lease) -> Iterator[None]:
    over = threading.Event()

    def renew() -> None:
        while not over.wait(0.1):
            lease.renew(folder, mine)

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_chief_of_another_run_on_another_machine_is_replaced_only_if_it_does_not_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "FREE_SECONDS", 2.0)
    folder = str(tmp_path)
    old = lease.take(folder, "old", "a run", HERE)
    with renewed(folder, old), pytest.raises(UserError, match="another job is using it, on another machine"):
        lease.take(folder, "new", "another run", ELSEWHERE)
    assert lease.take(folder, "new", "another run", ELSEWHERE).number > old.number


def test_a_chief_of_the_same_run_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clocks, "pause", lambda _: pytest.fail("it waits"))
    lease.take(str(tmp_path), "old", "a run", HERE)
    assert not Predecessor(str(tmp_path), "a run").saves()
    lease.take(str(tmp_path), "new", "a run", ELSEWHERE)


def test_a_chief_that_was_asked_to_stop_saves_until_it_releases_its_lease_or_no_longer_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "FREE_SECONDS", 1.0)
    folder = str(tmp_path)
    old = lease.take(folder, "old", "a run", HERE)
    predecessor = Predecessor(folder, "a run")
    with renewed(folder, old):
        assert not predecessor.saves(), "it was not asked to stop"
        old.leaving = True
        time.sleep(1.2)
        assert predecessor.saves()
        assert not Predecessor(folder, "another run").saves()
    begun = time.monotonic()
    while predecessor.saves():
        assert time.monotonic() - begun < 5, "it no longer works"
        time.sleep(0.05)
    assert time.monotonic() - begun > 0.5
    with renewed(folder, old):
        time.sleep(0.2)
        assert predecessor.saves()
        old.released = True
        lease.release(folder, old)
        assert not predecessor.saves()


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


def test_the_child_of_a_chief_that_was_replaced_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease.take(str(tmp_path), "new", "", HERE)
    checkpoint.save(tmp_path, 500, {"w": np.zeros(3)}, {})
    unfinished = layout.checkpoints(tmp_path) / ".tmp-step-00000600-99999"
    unfinished.mkdir()
    monkeypatch.setenv(environment.LEASE, lease.holder(str(tmp_path), "old"))
    for write in (
        lambda: checkpoint.prune(tmp_path, 3),
        lambda: checkpoint.save(tmp_path, 500, {"w": np.zeros(3)}, {}),
    ):
        with pytest.raises(TrainerError) as caught:
            write()
        assert caught.value.code == Exit.REPLACED
    assert unfinished.is_dir()


def test_a_write_that_fails_because_another_chief_has_removed_the_files_is_no_fault_of_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease.take(str(tmp_path), "old", "a run", HERE)
    monkeypatch.setenv(environment.LEASE, lease.holder(str(tmp_path), "old"))
    write = arrays.write

    def slow(file: BinaryIO, values: Iterable[tuple[str, arrays.Array]]) -> str:
        digest = write(file, values)
        lease.take(str(tmp_path), "new", "a run", ELSEWHERE)
        for path in layout.checkpoints(tmp_path).glob(".tmp-*"):
            for each in path.iterdir():
                each.unlink()
            path.rmdir()
        return digest

    monkeypatch.setattr(arrays, "write", slow)
    with pytest.raises(TrainerError) as caught:
        checkpoint.save(tmp_path, 500, {"w": np.zeros(3)}, {})
    assert caught.value.code == Exit.REPLACED


def test_an_earlier_chief_that_writes_an_emptied_model_dir_again_does_not_replace_its_successor(tmp_path: Path) -> None:
    """A program of the new chief has emptied model_dir before the old chief, on a lost node, has looked."""
    folder = str(tmp_path)
    old, new = (lease.take(folder, name, "a run", HERE) for name in ("old", "new"))
    layout.lease(tmp_path).unlink()
    assert lease.renew(folder, old)
    assert lease.renew(folder, new)
    lease.require(folder, "new", new.number)
    assert not lease.renew(folder, old)
    assert lease.read(folder) == new
