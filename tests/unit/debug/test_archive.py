"""The archive: whole or not at all, for its owner alone, with nothing that a terminal or a browser would obey."""

from __future__ import annotations

import json
import os
import stat
import zipfile
from pathlib import Path

import pytest

from trainer.debug import archive
from trainer.debug.archive import Archive, Entry, printable
from trainer.debug.ends import Ends
from trainer.debug.evidence import Log
from trainer.debug.redaction import Redactor
from trainer.job.errors import UserError

SECRET = "s3cr3tvalue"


def test_parts_are_added_without_their_secrets(tmp_path: Path) -> None:
    def fill(target: Archive) -> None:
        target.text("a.txt", f"a {SECRET}")
        target.document("b.json", {"x": SECRET, "env": {"OTHER": "y"}})
        assert target.log("logs/c.txt", Ends(b"first\n", f"last {SECRET}\n".encode(), "9 bytes"), "worker:1") == Log(
            "logs/c.txt",
            "first\n\n[ trainer debug: left out here: 9 bytes ]\n\nlast [hidden: KEY]\n",
            "worker:1",
        )
        target.missing("d", f"no\nanswer from {SECRET}")
        assert target.entries[2:] == [
            Entry("logs/c.txt", 69, "without 9 bytes"),
            Entry("d.txt", 29, "not available: no answer from [hidden: KEY]"),
        ]

    path = tmp_path / "x.zip"
    size = archive.write(path, "folder", Redactor({"KEY": SECRET}), fill)
    assert size == path.stat().st_size
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with zipfile.ZipFile(path) as found:
        texts = {name: found.read(name).decode() for name in found.namelist()}
    assert texts["folder/a.txt"] == "a [hidden: KEY]"
    assert json.loads(texts["folder/b.json"]) == {"x": "[hidden: KEY]", "env": {"OTHER": "[hidden: OTHER]"}}
    assert not any(SECRET in text for text in texts.values())


def fail(error: Exception) -> None:
    raise error


def test_a_part_that_fails_has_a_file_with_the_reason_and_the_others_stay(tmp_path: Path) -> None:
    def fill(target: Archive) -> None:
        with target.part("objects/Pod.txt"):
            fail(UserError("Pod/x: Kubernetes refuses this (403)"))
        with target.part("logs/a.txt"):
            fail(TimeoutError())
        with target.part("logs/b.txt"):
            fail(KeyError("status"))
        target.text("c.txt", "there")

    archive.write(tmp_path / "x.zip", "f", Redactor(), fill)
    with zipfile.ZipFile(tmp_path / "x.zip") as found:
        texts = {name: found.read(name).decode() for name in found.namelist()}
    assert texts == {
        "f/objects/Pod.txt": "Pod/x: Kubernetes refuses this (403)\n",
        "f/logs/a.txt": "no answer in time\n",
        "f/logs/b.txt": "KeyError: 'status'\n",
        "f/c.txt": "there",
    }


def test_names_stay_in_the_folder_and_each_file_has_its_own(tmp_path: Path) -> None:
    def fill(target: Archive) -> None:
        for name in ("../../etc/passwd", "/abs", "a b<c>.txt", "a b<c>.txt"):
            target.text(name, "x")

    archive.write(tmp_path / "x.zip", "f", Redactor(), fill)
    with zipfile.ZipFile(tmp_path / "x.zip") as found:
        assert found.namelist() == ["f/etc/passwd", "f/abs", "f/a-b-c-.txt", "f/a-b-c--2.txt"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\r\nb\rc\n", "a\nb\nc\n"),
        ("\x1b]0;title\x07\x1b[31mred", "\\x1b]0;title\\x07\\x1b[31mred"),
        ("a\u202eb\u2066c", "a\\u202eb\\u2066c"),
        ("é 漢 😀\ttab", "é 漢 😀\ttab"),
        ("half \ud800 pair", "half \\ud800 pair"),
    ],
)
def test_what_a_terminal_obeys_is_shown_instead(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_nothing_is_left_if_it_cannot_be_completed(tmp_path: Path) -> None:
    (tmp_path / "x.zip").write_text("the one before")

    def fill(target: Archive) -> None:
        target.text("a.txt", "x")
        raise UserError("no such job")

    with pytest.raises(UserError, match="no such job"):
        archive.write(tmp_path / "x.zip", "f", Redactor(), fill)
    assert os.listdir(tmp_path) == ["x.zip"]  # noqa: PTH208
    assert (tmp_path / "x.zip").read_text() == "the one before"


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        UserError, match=r"archive: .*/none/x\.zip: cannot be written: No such file or directory; choose"
    ):
        archive.write(tmp_path / "none" / "x.zip", "f", Redactor(), lambda target: None)
