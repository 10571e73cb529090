"""The record of what happened to a job: as a file, and as its chief writes it."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from trainer.job.errors import Exit, TrainerError
from trainer.model_dir import journal, layout
from trainer.protocol.facts import Began, Entry, Formed, Note, entry
from trainer.supervisor.chief import journal as chief_journal
from trainer.supervisor.chief.journal import Journal, since_it_began

MIB = 1 << 20


def numbers(model_dir: Path) -> list[object]:
    return [line["n"] for line in journal.read(str(model_dir))]


def append(model_dir: Path, *which: int, term: int = 1) -> None:
    journal.append(str(model_dir), term, [{"n": number} for number in which])


# The file. ----------------------------------------------------------------------------------------


def test_lines_are_read_as_they_were_appended(tmp_path: Path) -> None:
    lines: list[dict[str, object]] = [
        {"time": 1.5, "text": "\u2028 \ud800 caf\u00e9"}, {"loss": {"cause": "killed"}, "text": "a\nb"}
    ]  # fmt: skip
    assert journal.read(str(tmp_path)) == []
    for line in lines:
        journal.append(str(tmp_path), 3, [line])
    assert journal.read(str(tmp_path)) == lines
    assert layout.journal(tmp_path).read_bytes().count(b"\n") == 2


def test_a_line_that_a_killed_chief_has_cut_off_is_the_only_one_that_is_lost(tmp_path: Path) -> None:
    append(tmp_path, 1, 2, 3)
    whole = layout.journal(tmp_path).read_bytes()
    for cut in range(1, len(b'{"term": 1, "n": 3}\n') + 1):
        (layout.make_own(tmp_path) / "journal.jsonl").write_bytes(whole[:-cut])
        append(tmp_path, 4, 5)
        # Without its line feed alone, the line is whole.
        assert numbers(tmp_path) == ([1, 2, 3, 4, 5] if cut == 1 else [1, 2, 4, 5])


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.binary(max_size=80), st.integers(0, 200))
def test_bytes_of_any_kind_in_between_damage_the_lines_that_they_touch_alone(junk: bytes, place: int) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        append(folder, *range(5))
        path = layout.journal(folder)
        body = path.read_bytes()
        place = min(place, len(body))
        path.write_bytes(body[:place] + junk + body[place:])
        # A digit within a term makes a line of a later chief, behind which those of this one do not count.
        assume(all(line.get("term", 1) == 1 for line in journal.parse(path.read_bytes())))
        append(folder, 5)
        hit = body[:place].count(b"\n")
        starts_a_line = not place or body[place - 1 : place] == b"\n"
        between = starts_a_line and junk.endswith(b"\n")
        kept = [number for number in range(6) if number != hit or between]
        found = [line.get("n") for line in journal.read(str(folder))]
        assert [number for number in found if number in kept] == kept
    finally:
        shutil.rmtree(folder)


def test_a_file_has_a_limit_and_the_one_before_it_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "FILE_BYTES", 1000)
    for number in range(300):
        append(tmp_path, number)
        found = numbers(tmp_path)
        assert found == list(range(number + 1))[-len(found) :], "the newest lines, in order"
        assert len(found) >= min(number + 1, 40)
    files = sorted(layout.own(tmp_path).iterdir())
    assert files == sorted([layout.journal(tmp_path), layout.journal(tmp_path, 1)])
    assert all(file.stat().st_size < 1100 for file in files)


def test_a_file_of_any_length_is_read_from_its_end_and_replaced(tmp_path: Path) -> None:
    """A program may write to it."""
    path = layout.journal(tmp_path)
    append(tmp_path, 1)
    os.truncate(path, 500 * MIB)  # sparse
    with path.open("ab") as file:
        file.write(b'\n{"term": 1, "n": 2}\n')
    before = read_bytes()
    tracemalloc.start()
    found = numbers(tmp_path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [2], "what is before the end is lost"
    assert read_bytes() - before < 2 * journal.FILE_BYTES + MIB
    assert peak < 8 * journal.FILE_BYTES
    append(tmp_path, 3)
    assert (path.stat().st_size, numbers(tmp_path)) == (len(b'{"term": 1, "n": 3}\n'), [2, 3])


def read_bytes() -> int:
    """Bytes that this process has read from files so far."""
    fields = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(fields["rchar"])


def test_a_line_of_any_length_is_passed_over(tmp_path: Path) -> None:
    append(tmp_path, 1)
    with layout.journal(tmp_path).open("a") as file:
        file.write(json.dumps({"n": "x" * journal.LONGEST_LINE}) + "\n" + "[" * 100_000 + "\n")
    append(tmp_path, 2)
    assert numbers(tmp_path) == [1, 2]


@pytest.mark.parametrize("kind", ["folder", "link", "unreadable"])
@pytest.mark.usefixtures("unprivileged")
def test_a_journal_that_cannot_be_read_is_empty(tmp_path: Path, kind: str) -> None:
    path = layout.make_own(tmp_path) / layout.JOURNAL
    if kind == "folder":
        path.mkdir()
    elif kind == "link":
        path.symlink_to(tmp_path / "none")
    else:
        append(tmp_path, 1)
        path.chmod(0)
    assert journal.read(str(tmp_path)) == []


def test_lines_of_a_chief_that_had_lost_its_place_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, 1, 2, term=4)
    append(tmp_path, 3, term=5)
    append(tmp_path, 91, term=4)
    append(tmp_path, 4, term=5)
    append(tmp_path, 5, term=7)
    append(tmp_path, 92, 93, term=5)
    assert numbers(tmp_path) == [1, 2, 3, 4, 5]
    monkeypatch.setattr(journal, "FILE_BYTES", layout.journal(tmp_path).stat().st_size - 1)
    append(tmp_path, 94, term=6)
    append(tmp_path, 6, term=7)
    assert layout.journal(tmp_path, 1).exists()
    assert numbers(tmp_path) == [1, 2, 3, 4, 5, 6], "nor those behind a line of the file before"


def test_a_line_whose_term_makes_no_sense_does_not_count(tmp_path: Path) -> None:
    append(tmp_path, 1, term=2)
    lines = [{"term": "9", "n": 91}, {"term": None, "n": 92}, {"n": 93}]
    with layout.journal(tmp_path).open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    append(tmp_path, 2, term=2)
    assert numbers(tmp_path) == [1, 2]


FULL = """
import errno, resource, sys
from trainer.model_dir import journal
resource.setrlimit(resource.RLIMIT_FSIZE, (60, 60))
for which in range(2):
    try:
        journal.append(sys.argv[1], 1, [{"n": 4}, {"n": 5}, {"n": 6}])
    except OSError as error:
        print(errno.errorcode[error.errno])
"""


def test_on_a_full_disk_all_lines_are_added_or_none(tmp_path: Path) -> None:
    append(tmp_path, 1, 2)
    before = layout.journal(tmp_path).read_bytes()
    assert len(before) < 60 < len(before) + 60, "room for a part of the lines"
    done = subprocess.run(
        [sys.executable, "-c", FULL, str(tmp_path)], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["ENOSPC", "ENOSPC"], done.stderr
    assert layout.journal(tmp_path).read_bytes() == before
    append(tmp_path, 4)
    assert numbers(tmp_path) == [1, 2, 4]


# Its chief. ---------------------------------------------------------------------------------------


def notes(*texts: str) -> list[Entry]:
    return [entry(float(number), Note(text)) for number, text in enumerate(texts)]


def texts(entries: Sequence[Entry]) -> list[str]:
    return [each.text for each in entries]


def nothing() -> None:
    """Nobody has taken this chief's place."""


@pytest.mark.usefixtures("unprivileged")
def test_a_chief_that_cannot_write_warns_once_and_writes_all_when_it_can(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chief = Journal(str(tmp_path), 1, nothing)
    tmp_path.chmod(0o555)
    for text in ("a", "b", "c"):
        chief.write(notes(text))
    path = layout.journal(tmp_path)
    assert capsys.readouterr().out.splitlines() == [
        f"warning: {path}: cannot be written: Permission denied; the job goes on, and it is tried again"
    ]
    assert since_it_began(str(tmp_path)) == []
    tmp_path.chmod(0o755)
    chief.write([])
    assert texts(since_it_began(str(tmp_path))) == ["a", "b", "c"]
    chief.write(notes("d"))
    assert texts(since_it_began(str(tmp_path))) == ["a", "b", "c", "d"], "each once"
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("unprivileged")
def test_what_waits_for_room_has_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chief_journal, "MOST_WAITING", 3)
    chief = Journal(str(tmp_path), 1, nothing)
    tmp_path.chmod(0o555)
    for number in range(9):
        chief.write(notes(str(number)))
    tmp_path.chmod(0o755)
    chief.write([])
    assert texts(since_it_began(str(tmp_path))) == ["6", "7", "8"]


def test_a_chief_that_has_lost_its_place_writes_nothing_and_says_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lost() -> None:
        raise TrainerError("another chief has the lease", Exit.REPLACED)

    Journal(str(tmp_path), 1, lost).write(notes("a"))
    assert (list(tmp_path.iterdir()), capsys.readouterr().out) == ([], "")


def test_of_two_chiefs_at_one_instant_the_later_one_s_facts_count(tmp_path: Path) -> None:
    earlier, later = (Journal(str(tmp_path), term, nothing) for term in (3, 4))
    earlier.write([entry(1.0, Formed(1, 3))])
    later.write([entry(2.0, Formed(2, 3))])
    earlier.write([entry(2.1, Note("written late"))])
    later.write([entry(3.0, Note("after it"))])
    assert texts(since_it_began(str(tmp_path))) == [
        "generation 1 formed: 3 tasks", "generation 2 formed: 3 tasks", "after it",
    ]  # fmt: skip


def test_a_job_that_began_anew_has_the_facts_since_then(tmp_path: Path) -> None:
    chief = Journal(str(tmp_path), 1, nothing)
    chief.write([*notes("of version 0.2"), entry(1.0, Began("1")), *notes("a"), entry(2.0, Began("2")), *notes("b")])
    assert texts(since_it_began(str(tmp_path))) == ["b"]
    (layout.make_own(tmp_path) / "journal.jsonl").write_text('{"time": 1, "text": "x"}\n{"time": "no"}\n{"text": 3}\n')
    assert texts(since_it_began(str(tmp_path))) == ["x"]
