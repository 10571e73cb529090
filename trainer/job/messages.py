"""Formatting of messages: values, tables, commands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence

from trainer import __version__

RELATIVE = "a path is relative to the spec, or with --set to the current folder"


def show(value: object) -> str:
    """Formats a value as JSON, shortened to 80 characters."""
    try:
        text = repr(value) if isinstance(value, str) else json.dumps(value, default=str)
    except (TypeError, ValueError, RecursionError):  # a key that is not a string, a recursive mapping, 5,000 digits
        text = f"({type(value).__name__})"
    return text if len(text) <= 80 else text[:77] + "..."


def how_to_install(extra: str) -> str:
    """The fix for a missing package. The package index has another project under the name trainer."""
    return (
        f"make wheel in trainer's repository, then pip install 'dist/trainer-{__version__}-py3-none-any.whl[{extra}]'"
    )


def digits(value: float, thousands: str = "") -> str:
    """Formats four significant digits, or all before the point: 4.853, 7e-07, 12346 (12,346 if thousands is ",")."""
    return f"{value:{thousands}.0f}" if 1000 <= abs(value) < 1e15 else f"{value:.4g}"


def clock(seconds: float) -> str:
    """A duration as hours, minutes and seconds: 0:01:40."""
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def duration(seconds: float) -> str:
    """A duration for people, as the page has it: 12 s, 3 min 5 s, 2 h 10 min."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    large, small, names = (3600, 60, ("h", "min")) if whole >= 3600 else (60, 1, ("min", "s"))
    rest = whole % large // small
    return f"{whole // large} {names[0]}{f' {rest} {names[1]}' if rest else ''}"


def counted(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`, `3,000 tasks`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """A line per row; columns as wide as their widest cell. What a file or program said may control no terminal."""
    rows = [tuple(map(_plain, row)) for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def _plain(text: str) -> str:
    """A text in one line of characters that can be seen."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " if char.isspace() else repr(char)[1:-1] for char in text)


def command_line(words: Sequence[str], overrides: Sequence[str]) -> str:
    """A `trainer` command in shell syntax, with `--set` for each override, on one line, as YAML comments require."""
    whole = [*words, *(word for each in overrides for word in ("--set", each))]
    return " ".join(shlex.join(whole).splitlines())


def nearest(value: object, known: Iterable[str]) -> str:
    """`; did you mean ...?` if a known word is close, otherwise empty."""
    from difflib import get_close_matches  # imported here: saves 4 ms if there are no mistakes

    near = get_close_matches(str(value), known, n=1)
    return f"; did you mean {near[0]}?" if near else ""
