"""The beginning and the end of a log of any length."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from trainer.debug import ends
from trainer.debug.ends import Ends


def numbered(first: int, last: int) -> bytes:
    """Lines as an engine sends them, with their times."""
    return b"".join(b"2026-11-25T09:12:%02d.%09dZ line %d\n" % (n // 1000 % 60, n, n) for n in range(first, last))


def pieces(text: bytes, size: int = 100) -> Iterable[bytes]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def test_a_short_file_is_whole(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"one\ntwo")
    assert ends.of_file(tmp_path / "log", 7) == Ends(b"one\ntwo")


def test_of_a_long_file_whole_lines_at_both_ends_are_kept_and_the_rest_is_counted(tmp_path: Path) -> None:
    text = numbered(0, 1000)
    (tmp_path / "log").write_bytes(text)
    head, tail, left_out = ends.of_file(tmp_path / "log", 4000)
    assert text.startswith(head)
    assert text.endswith(tail)
    assert head.endswith(b"\n")
    assert tail.startswith(b"2026-")
    assert 3800 < len(head) + len(tail) <= 4000
    assert left_out == f"{len(text) - len(head) - len(tail):,} of {len(text):,} bytes"


def test_a_file_of_500_megabytes_is_read_at_its_ends_only(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        file.write(b"the first\n")
        file.truncate(500 << 20)  # a hole: it takes no room
        file.seek(0, 2)
        file.write(b"\nthe last\n")
    head, tail, left_out = ends.of_file(tmp_path / "log", 4096)
    assert (head, tail) == (b"the first\n", b"the last\n")
    assert left_out == f"{(500 << 20) - 9:,} of {(500 << 20) + 10:,} bytes"


def test_a_line_without_an_end_is_no_part_of_the_ends(tmp_path: Path) -> None:
    """Half of a secret would not be recognised."""
    (tmp_path / "log").write_bytes(b"x" * 10_000)
    assert ends.of_file(tmp_path / "log", 4000)[:2] == (b"", b"")


@pytest.mark.parametrize("count", [10, 21, 100, 2000])
def test_the_ends_of_a_stream_are_its_lines_without_those_between(count: int) -> None:
    text = numbered(0, count)
    head, whole = ends.first(iter(pieces(text)), 1000)
    assert whole == (len(text) < 1000)
    tail = ends.last(iter(pieces(text)), 3000)
    joined = Ends(head) if whole else ends.joined(head, tail)
    if len(text) < 3900:
        assert joined == Ends(text)
    else:
        assert text.startswith(joined.head)
        assert text.endswith(joined.tail)
        assert joined.left_out.startswith("the lines between 2026-11-25T09:12:00.000000")
        assert len(joined.head) + len(joined.tail) <= 4000


def test_many_logs_share_what_all_may_have() -> None:
    assert ends.share(1) == ends.share(0) == ends.MOST_BYTES
    assert 100 * ends.share(100) <= ends.ALL_BYTES
    assert ends.share(10**6) == ends.LEAST_BYTES
