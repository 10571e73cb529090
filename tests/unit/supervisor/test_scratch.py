"""Temporary folders of children, in a folder that replaces /tmp."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

import pytest

from trainer.supervisor import orphans, scratch


@pytest.fixture
def tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_a_folder_is_private_and_goes_with_all_that_is_in_it(tmp: Path) -> None:
    folder = scratch.make(orphans.mark(1))
    assert folder is not None
    assert (folder.parent, folder.stat().st_mode & 0o777) == (tmp, 0o700)
    assert ":" not in str(folder), "where paths are listed a colon separates them"
    (folder / "of_the_user").mkdir()
    (folder / "of_the_user/file.py").write_text("x")
    asyncio.run(scratch.remove(folder))
    assert list(tmp.iterdir()) == []


def test_without_a_folder_that_is_writable_there_is_none(tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp / "absent"))
    assert scratch.make(orphans.mark(1)) is None
    monkeypatch.setattr(tempfile, "tempdir", str(tmp))
    mark = orphans.mark(2)
    (tmp / f"trainer_{mark.replace(':', '_')}").symlink_to("/")
    assert scratch.make(mark) is None, "another user was there first"


def test_folders_of_supervisors_that_are_gone_are_removed(tmp: Path) -> None:
    mark = orphans.mark(1)
    namespace, pid, started, number = mark.split(":")
    gone = f"{namespace}:{pid}:{int(started) + 1}:{number}"  # the same process id, at another time
    kept = {scratch.make(mark), scratch.make(f"1{gone}"), tmp / "trainer_notes"}
    (tmp / "trainer_notes").mkdir()
    left_over = scratch.make(gone)
    assert left_over is not None
    (left_over / "__autograph_generated_file.py").touch()
    asyncio.run(scratch.remove_left_over())
    assert set(tmp.iterdir()) == kept, "of this process, of another pid namespace, and of another program"
