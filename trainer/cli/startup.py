"""What commands share: a quick start, and lines on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def without_plugins() -> None:
    """pydantic looks for its plugins in the metadata of every installed package: 30 ms. Only this process does without:
    the variable PYDANTIC_DISABLE_PLUGINS would reach the user's program too."""
    from pydantic.plugin import _loader

    _loader._plugins = {}


def print_errors(lines: Iterable[str]) -> None:
    for line in lines:
        print(f"trainer: {line}", file=sys.stderr)
