"""Plain text: tables, commands, and JSON that something else has written."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from typing import Any


def aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    """A line per row; columns as wide as their widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def command_line(words: Sequence[str], overrides: Sequence[str]) -> str:
    """A `trainer` command as a shell takes it, with `--set` for each override; one line, for it also stands in comments
    of YAML."""
    whole = [*words, *(word for each in overrides for word in ("--set", each))]
    return " ".join(shlex.join(whole).splitlines())


def json_object(text: str | bytes) -> dict[str, Any]:
    """The object that a text holds as JSON; empty if it holds none."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
