"""README, CONTRIBUTING and docs/ as the tests read them: their commands are run and their claims compared."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md")))
}
"""Texts by path."""


def blocks(language: str, page: str = "") -> list[str]:
    """Fenced blocks of all pages, or of one; a text that stands on several pages counts once."""
    texts = [PAGES[page]] if page else PAGES.values()
    found = [block for text in texts for block in re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.DOTALL)]
    return list(dict.fromkeys(found))


def commands(program: str, page: str = "") -> list[list[str]]:
    """Words of the commands of a program in console blocks; `VARIABLE=value` before one is left out."""
    lines = [line.removeprefix("$ ") for block in blocks("console", page) for line in block.splitlines()]
    found = [words for line in lines if (words := shlex.split(line, comments=True)) and words[0] == program]
    return [list(words) for words in dict.fromkeys(map(tuple, found))]


def in_tables() -> list[list[str]]:
    """`trainer local` commands within a line of text, as in cells of tables."""
    found = [text for page in PAGES.values() for text in re.findall(r"`(trainer local [^`]*)`", page)]
    return [shlex.split(text) for text in dict.fromkeys(found)]
