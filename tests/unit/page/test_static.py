"""The files of the page: complete, known, and without anything from elsewhere."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

from trainer.page.routes import KINDS, STATIC

UPLOT = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}
"""SHA-256 of version 1.6.32 in npm; tests/locks/test_vendored.py compares the files themselves."""
OURS = [path for path in sorted(STATIC.rglob("*")) if path.suffix in KINDS and "vendor" not in path.parts]


def test_the_chart_library_is_the_published_one() -> None:
    for name, digest in UPLOT.items():
        assert hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() == digest, name


def test_scripts_import_files_that_are_there_and_all_are_used() -> None:
    reached, waiting = set[Path](), [STATIC / "page.js"]
    while waiting:
        path = waiting.pop()
        if path not in reached:
            reached.add(path)
            names = re.findall(r'^import .*?from "(\.[^"]+)";$', path.read_text(), re.MULTILINE)
            waiting += [(path.parent / name).resolve() for name in names]
    assert reached == {path for path in OURS if path.suffix == ".js"}


def test_the_index_names_files_that_are_there() -> None:
    names = re.findall(r'(?:src|href)="page/([^"]+)"', (STATIC / "index.html").read_text())
    assert [name for name in names if not (STATIC / name).is_file()] == []
    assert {"page.js", "page.css", *(f"vendor/{name}" for name in UPLOT)} <= set(names)


def test_nothing_is_from_elsewhere_nor_becomes_html() -> None:
    """The policy forbids both in the browser; here a line is found before."""
    for path in OURS:
        text = path.read_text().replace("http://www.w3.org/2000/svg", "")  # a name, not an address
        found = re.findall(
            r"https?://|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|\bstyle=|<style|<script>", text
        )
        assert found == [], path.name
