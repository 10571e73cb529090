from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.model_dir import disk, result, state
from trainer.model_dir.files import write_json


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    disk.replace(path, ["one, ", "two"])

    def pieces() -> list[str]:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        disk.replace(path, (each for each in pieces()))
    assert path.read_text() == "one, two"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize(
    ("write", "synced"),
    [
        (lambda folder: disk.replace(folder / "x", ["y"]), 0),
        (lambda folder: disk.replace(folder / "x", ["y"], sync=True), 2),
        (lambda folder: write_json(folder / "x", {}, sync=True), 2),
        (lambda folder: state.save(str(folder), state.State()), 0),
        (lambda folder: state.save(str(folder), state.State(), sync=True), 2),
        (lambda folder: result.write(str(folder), _Result()), 2),
    ],
)
def test_what_a_loss_of_power_must_not_undo_is_synced_with_its_folder(
    write: Callable[[Path], object], synced: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    monkeypatch.setattr(os, "fsync", calls.append)
    write(tmp_path)
    assert len(calls) == synced


class _Result(result.Result):
    def __init__(self) -> None:
        """With nothing in it."""

    def document(self) -> dict[str, object]:
        return {"status": "succeeded"}


def test_lines_are_appended_behind_the_rest_of_one_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b'{"a": 1}\n{"b"')
    disk.append(path, b'{"c": 3}\n')
    disk.append(path, b'{"d": 4}\n')
    assert path.read_bytes().splitlines() == [b'{"a": 1}', b'{"b"', b'{"c": 3}', b'{"d": 4}']


@pytest.mark.parametrize(("after", "expected"), [(b"longer text", b"longer text"), (b"text", b"text"), (None, b"text")])
def test_a_file_is_changed_in_its_place(after: bytes | None, expected: bytes, tmp_path: Path) -> None:
    path = tmp_path / "lease"
    path.write_bytes(b"text")
    os.utime(path, (1, 1))
    inode = path.stat().st_ino
    disk.edit(path, lambda before: after if before == b"text" else b"?")
    assert (path.read_bytes(), path.stat().st_ino) == (expected, inode)
    assert (disk.modified(path) == 10**9) == (after is None), "the same content shows the time"


def test_an_overwritten_file_is_whole_or_empty(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"a long text")
    disk.overwrite(path, b"short")
    assert path.read_bytes() == b"short"
    with pytest.raises(FileNotFoundError):
        disk.overwrite(tmp_path / "none", b"")


def test_a_new_file_replaces_none(tmp_path: Path) -> None:
    disk.create(tmp_path / "a", b"1")
    with pytest.raises(FileExistsError):
        disk.create(tmp_path / "a", b"2")
    assert disk.read(tmp_path / "a") == b"1"


def test_of_two_that_take_a_lock_one_has_it_until_it_closes_the_file(tmp_path: Path) -> None:
    first, second = disk.open_lock(tmp_path / "lock"), disk.open_lock(tmp_path / "lock", make=False)
    assert [disk.take_lock(first), disk.take_lock(second), disk.take_lock(first)] == [True, False, True]
    first.close()
    assert disk.take_lock(second)
    second.close()


def test_what_is_not_there_has_no_size_time_or_names(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert (disk.size(missing), disk.modified(missing), disk.names(missing)) == (0, 0, [])
    disk.remove(missing)
    assert not disk.is_folder(missing)
    disk.make_folder(missing / "a", parents=True)
    assert disk.names(missing) == ["a"]
