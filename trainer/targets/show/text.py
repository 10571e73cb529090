"""Plain text: tables and commands."""

from __future__ import annotations

import shlex
from collections.abc import Sequence


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """A line per row; columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def command_line(words: Sequence[str], overrides: Sequence[str]) -> str:
    """A `trainer` command in shell syntax, with `--set` for each override, on one line, as YAML comments require."""
    whole = [*words, *(word for each in overrides for word in ("--set", each))]
    return " ".join(shlex.join(whole).splitlines())
