"""The tables of README, CONTRIBUTING and docs/: each row has the cells of its title, as GitHub and the site draw it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.tools.documents import PAGES, ROOT

TEXTS = PAGES | {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").rglob("*.md"))
}
_FENCED = re.compile(r"^(```|~~~).*?^\1", re.M | re.DOTALL)
_RULE = re.compile(r"\|?(\s*:?-+:?\s*\|)*\s*:?-+:?\s*\|?")


def cells(row: str) -> int:
    """The cells of a row. A `|` in one has a backslash before it, in code is an entity."""
    return len(re.findall(r"(?<!\\)\|", row.strip().removeprefix("|").removesuffix("|"))) + 1


def broken(text: str) -> Iterator[str]:
    """The rows whose cells are not as many as their table's title has; a row without a rule before it is no table."""
    lines = _FENCED.sub(lambda block: "\n" * block[0].count("\n"), text).splitlines()
    width = 0
    for number, line in enumerate(lines):
        if (
            "|" in line
            and number + 1 < len(lines)
            and "|" in (rule := lines[number + 1])
            and _RULE.fullmatch(rule.strip())
        ):
            width = cells(line)
        elif not line.strip().startswith("|"):
            width = 0
        if width and cells(line) != width:
            yield f"line {number + 1}: {cells(line)} cells and not {width}: {line}"
        elif width and re.search(r"`[^`]*\\\|[^`]*`", line):
            yield f"line {number + 1}: the site shows the backslash; write <code>&#124;</code>: {line}"
        elif not width and line.strip().startswith("|"):
            yield f"line {number + 1}: a row of no table: {line}"


@pytest.mark.parametrize("page", TEXTS)
def test_no_table_is_broken(page: str) -> None:
    assert [*broken(TEXTS[page])] == []


@pytest.mark.parametrize(
    ("text", "bad"),
    [
        ("| a | b |\n|---|---|\n| `x` | 1 |\n", 0),
        ("| a | b |\n|---|---|\n| x \\| y | 1 |\n", 0),
        ("| a | b |\n|---|---|\n| <code>x &#124; y</code> | 1 |\n", 0),
        ("| a | b |\n|---|---|\n| `x \\| y` | 1 |\n", 1),
        ("| a | b |\n|---|---|\n| `x | y` | 1 |\n", 1),
        ("| a | b |\n|---|---|\n| x |\n", 1),
        ("| a | b |\n|---|\n| x | y |\n", 2),
        ("| a | b |\n\n|---|---|\n| x | y |\n", 3),
        ("text\n```\n| a | b |\n```\n", 0),
    ],
)
def test_a_broken_table_is_found(text: str, bad: int) -> None:
    assert bool([*broken(text)]) is bool(bad)
