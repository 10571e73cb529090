"""docs/decisions: one file each, numbered without gaps; statuses, index and references agree with them."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
NUMBERS = {int(path.name[:4]): path for path in FILES}
STATUS = re.compile(r"^Status: ((accepted|superseded by \[decision \d+\]\(\S+\))(; .+)?|withdrawn; .*\d.*)\.$")
"""A withdrawn decision names the figure that speaks against it."""
SECTIONS = ["Context", "Decision", "Drawbacks", "Alternatives"]


def title(path: Path) -> str:
    return path.read_text().partition("\n")[0].removeprefix(f"# {int(path.name[:4])}. ")


def status(path: Path) -> str:
    return path.read_text().split("\n")[2]


def short_status(path: Path) -> str:
    """accepted, withdrawn, or: superseded by 30"""
    if status(path).startswith("Status: withdrawn"):
        return "withdrawn"
    successor = re.search(r"superseded by \[decision (\d+)\]", status(path))
    return f"superseded by {successor[1]}" if successor else "accepted"


def test_they_are_numbered_from_1_without_gaps() -> None:
    assert list(NUMBERS) == list(range(1, len(FILES) + 1))


def test_each_has_its_number_a_status_the_sections_and_at_most_a_page() -> None:
    assert {path.name: faults for path in FILES if (faults := faults_of(path))} == {}


def faults_of(path: Path) -> list[str]:
    text = path.read_text()
    sections = re.findall(r"^## (.*)$", text, re.MULTILINE)
    rules = {
        "its number": text.startswith(f"# {int(path.name[:4])}. "),
        "a status": STATUS.match(status(path)),
        "the sections in order": sections == [name for name in SECTIONS if name in sections],
        "each section but Drawbacks": {"Context", "Decision", "Alternatives"} <= {*sections},
        "at most 500 words": len(text.split()) <= 500,
    }
    return [name for name, holds in rules.items() if not holds]


def test_a_superseded_decision_and_its_successor_name_each_other() -> None:
    def pairs(word: str) -> set[tuple[int, int]]:
        return {
            (number, int(other))
            for number, path in NUMBERS.items()
            for other in re.findall(rf"{word} \[decision (\d+)\]", status(path))
        }

    assert {(old, new) for new, old in pairs("supersedes")} == pairs("superseded by")


def test_the_index_lists_them_with_topic_title_and_status() -> None:
    row = r"^\| (\d+) \| [A-Za-z, ]+ \| \[(.*)\]\((.*)\) \| (.*) \|$"
    rows = re.findall(row, (FILES[0].parent / "index.md").read_text(), re.MULTILINE)
    assert rows == [(str(number), title(path), path.name, short_status(path)) for number, path in NUMBERS.items()]


def references() -> list[tuple[str, int]]:
    """(file, number) of each "decision 12" in code, tests and documents."""
    places = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Makefile", "pyproject.toml")]
    places += [
        path for folder in ("trainer", "tests", "docs", "images", "scripts") for path in (ROOT / folder).rglob("*")
    ]
    texts = {
        path: path.read_text()
        for path in places
        if path.suffix in {".py", ".md", ".toml", ".sh", ".j2", ""} and path.is_file()
    }
    return [
        (str(path.relative_to(ROOT)), int(number))
        for path, text in texts.items()
        for number in re.findall(r"\bdecision (\d+)", text, re.IGNORECASE)
    ]


def test_every_reference_is_to_a_decision_that_exists() -> None:
    found = references()
    assert [place for place, number in found if number not in NUMBERS] == []
    assert [place for place, _ in found if place.startswith("trainer/")], "none found: the pattern is wrong"


def test_a_link_has_the_number_of_the_file_that_it_names() -> None:
    links = [each for path in FILES for each in re.findall(r"\[decision (\d+)\]\(([^)]*)\)", path.read_text())]
    assert [(number, name) for number, name in links if NUMBERS[int(number)].name != name] == []
