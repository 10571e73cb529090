"""How the page looks, beside pictures that are kept. `make pictures` renews them, that of the README too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from playwright.sync_api import Page, expect

from tests.browser import pictures, scripted
from tests.browser.served import Script

Opened: TypeAlias = Callable[..., Page]
pytestmark = pytest.mark.part("pictures")
ROOT = Path(__file__).parents[2]
KEPT = Path(__file__).parent / "kept"
CASES: dict[str, tuple[Path, str, dict[str, Any], int]] = {
    "light": (ROOT / "docs" / "page.png", "overview", {"size": (1280, 900)}, 3),
    "dark": (KEPT / "dark.png", "steps", {"size": (1280, 720), "dark": True}, 3),
    "phone": (KEPT / "phone.png", "overview", {"size": (390, 844), "touch": True}, 3),
    "thousand": (KEPT / "thousand.png", "tasks", {"size": (1280, 800)}, 998),
}


def drawn(page: Page, view: str) -> None:
    """Waits until the view's figures are there, and have their last size."""
    expect(page.locator(f"#view-{view} h2")).to_be_visible()
    page.evaluate("document.fonts.ready")
    for figure in page.locator("figure:visible .plot").all():
        expect(figure.locator("canvas")).to_be_visible()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.mark.parametrize("case", CASES)
def test_the_page_looks_as_it_did(
    script: Script, opened: Opened, case: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    kept, view, options, workers = CASES[case]
    script.document = scripted.document(workers)
    page = opened(view, **options, reduced=True)
    drawn(page, view)
    update = request.config.getoption("--update-golden")
    pictures.check(kept, page.screenshot(), update=update, failed=tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        "document.querySelector('.verdict').textContent = ''",
        "document.querySelector('.facts dd').textContent = ''",
        "document.querySelectorAll('canvas')[0].width = 0",
        "document.querySelector('#nav a[aria-current]').removeAttribute('aria-current')",
    ],
    ids=["verdict", "figure", "chart", "navigation"],
)
def test_a_part_that_is_missing_is_seen(opened: Opened, change: str) -> None:
    """The tolerance is smaller than what a reader would miss."""
    page = opened("overview", size=(1280, 900), reduced=True)
    drawn(page, "overview")
    before = page.screenshot()
    assert pictures.difference(before, page.screenshot()) == 0
    page.evaluate(change)
    assert pictures.difference(before, page.screenshot()) > pictures.SHARE


def test_the_picture_of_the_readme_is_small() -> None:
    assert (ROOT / "docs" / "page.png").stat().st_size < 120_000
