"""Lines of tasks: made harmless, merged, searched, bounded."""

from __future__ import annotations

import pytest

from trainer.page.lines import LONGEST_LINE, Lines, LogQuery, shown, time_in


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"plain \xc3\xa9", "plain é"),
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07text", "text"),
        (b"10%\r50%\r100%\r", "100%"),
        (b"\xff\xfe", "��"),
        (b"a\x00b\x08c", "a b c"),
        (b"\ttab\tx", "        tab     x"),
        ("\u202eevil\u2066".encode(), " evil "),
        (b"<script>alert(1)</script>", "<script>alert(1)</script>"),
        (b"x" * 100_000, "x" * (LONGEST_LINE - 3) + "..."),
        (b"", ""),
    ],
)
def test_a_line_is_text_of_a_limited_length_without_what_only_a_terminal_understands(line: bytes, text: str) -> None:
    assert shown(line) == text


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("I0000 00:00:1795569484.056510   11488 port.cc:153] on", 1795569484.05651),
        ("no time", None),
        ("9999-99-99 99:99:99.999999: I x", None),
    ],
)
def test_the_time_that_tensorflow_has_written(text: str, when: float | None) -> None:
    assert time_in(text) == when


def test_the_local_time_that_tensorflow_has_written() -> None:
    first, second = (time_in(f"2026-11-25 01:02:0{n}.500000: I tensorflow/x.cc:1] y") for n in (3, 4))
    assert first is not None
    assert second == first + 1


def texts(lines: Lines, **query: object) -> list[str]:
    found = lines.find(LogQuery(**query))["lines"]  # type: ignore[arg-type]
    assert isinstance(found, list)
    return [row["text"] for row in found]


def test_lines_of_several_tasks_are_merged_by_time() -> None:
    lines = Lines()
    lines.add("worker:0", [(1.0, "a"), (4.0, "d")])
    lines.add("worker:1", [(2.0, "b"), (3.0, "c")])
    assert texts(lines) == ["a", "b", "c", "d"]


def test_a_reader_gets_each_line_once() -> None:
    lines = Lines()
    lines.add("worker:0", [(5.0, "first")])
    found = lines.find(LogQuery())["lines"]
    lines.add("worker:1", [(1.0, "late"), (6.0, "new")])
    assert isinstance(found, list)
    assert texts(lines, after=found[-1]["n"]) == ["late", "new"]


def test_lines_are_found_by_task_and_by_text_in_either_case() -> None:
    lines = Lines()
    lines.add("worker:0", [(1.0, "Error: disk"), (2.0, "fine")])
    lines.add("worker:1", [(3.0, "an ERROR too")])
    assert texts(lines, search="error") == ["Error: disk", "an ERROR too"]
    assert texts(lines, search="error", task="worker:1") == ["an ERROR too"]
    assert texts(lines, search=".*") == []


def test_of_many_the_newest_are_shown_and_the_others_counted() -> None:
    lines = Lines()
    lines.add("worker:0", [(float(n), str(n)) for n in range(10)])
    lines.left_out = 5
    found = lines.find(LogQuery(limit=3))
    assert [row["text"] for row in found["lines"]] == ["7", "8", "9"]  # type: ignore[attr-defined]
    assert found["left_out"] == 7 + 5


def test_the_memory_for_lines_is_bounded() -> None:
    lines = Lines(most_bytes=10_000)
    for number in range(200):
        lines.add("worker:0", [(number + n / 1000, "x" * 100) for n in range(200)])
    assert 0 < len(texts(lines, limit=5000)) <= 10_000 / 300
    assert len(lines._entries) <= 10_000 / 300
    assert len(lines._new) <= 10_200
