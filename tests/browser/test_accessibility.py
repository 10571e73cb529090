"""Keyboards, screen readers, colours, phones: WCAG 2.2 AA by axe-core, and what it does not look at."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.scripted import NOW, SLOW
from tests.browser.served import Script

Opened: TypeAlias = Callable[..., Page]
pytestmark = pytest.mark.part("pictures")
VIEWS = ["overview", "tasks", "steps", "resources", "timeline", "logs", "checkpoints", "hangs", "spec", f"task/{SLOW}"]
PHONE = (390, 844)
RULES = {
    "runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
    # It takes links of the navigation that a phone has scrolled out of sight for skip links; ours has a test below.
    "rules": {"skip-link": {"enabled": False}},
    "resultTypes": ["violations"],
}
PARTS = ("input", "compute", "wait", "network", "between")
LINES = [f"--line-{number}" for number in range(1, 9)] + [f"--part-{part}" for part in PARTS]
SYMBOLS = ["--good", "--warn", "--bad", "--accent", "--control", "--muted"]


def with_everything(script: Script) -> None:
    """All kinds of states and messages are there."""
    script.document["status"]["hangs"] = [
        {
            "time": NOW,
            "text": "hangs",
            "groups": [{"tasks": [SLOW], "doing": "in step 7", "threads": [[["a.py", 1, "f", True]]]}],
        }
    ]
    script.document["status"]["warnings"] = ["a warning"]
    script.document["status"]["tasks"]["worker:0"]["state"] = "lost"
    script.lines = script.lines[:20]
    series = script.document["history"]["tasks"][SLOW]
    series["gpu"] = [0.5] * len(series["time"])


def show(page: Page, view: str) -> None:
    page.evaluate("view => { location.hash = view }", view)
    expect(page.locator(f"#view-{view.partition('/')[0]} h2")).to_be_visible()
    if view == "logs":
        expect(page.locator("#view-logs li").first).to_be_visible()


@pytest.mark.parametrize(("size", "dark"), [((1280, 800), False), (PHONE, True)], ids=["desktop, light", "phone, dark"])
def test_axe_finds_nothing(script: Script, opened: Opened, size: tuple[int, int], dark: bool) -> None:
    with_everything(script)
    page = opened(size=size, dark=dark)
    for view in VIEWS:
        show(page, view)
        for details in page.locator("main details:visible").all()[:1]:
            details.locator("summary").click()
        if view == "logs":
            page.get_by_label("Search").fill("step 1")
            expect(page.locator("mark").first).to_be_visible()
        found = Axe().run(page, options=RULES)
        wrong = [(rule["id"], node["html"], node["failureSummary"]) for rule in found.response["violations"]
                 for node in rule["nodes"]]  # fmt: skip
        assert wrong == [], view
        assert len(found.response["passes"]) > 20


def luminance(colour: str) -> float:
    """Relative luminance, as WCAG 2 defines it."""
    channels = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (each / 12.92 if each <= 0.04045 else ((each + 0.055) / 1.055) ** 2.4 for each in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_as_wcag_does() -> None:
    assert contrast("rgb(255, 255, 255)", "rgb(0, 0, 0)") == pytest.approx(21)
    assert contrast("rgb(119, 119, 119)", "rgb(255, 255, 255)") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_lines_and_symbols_stand_out_from_what_is_behind_them(opened: Opened, dark: bool) -> None:
    """1.4.11: 3 to 1. axe looks at texts only."""
    page = opened(dark=dark)

    def colour(name: str) -> str:
        probe = (
            "name => { const p = document.createElement('i'); p.style.color = `var(${name})`; document.body.append(p);"
        )
        found: str = page.evaluate(
            f"{probe} const found = getComputedStyle(p).color; p.remove(); return found }}", name
        )
        return found

    surface = colour("--surface")
    poor = {name: contrast(colour(name), surface) for name in LINES + SYMBOLS if contrast(colour(name), surface) < 3}
    assert poor == {}
    assert len({colour(name) for name in LINES[:8]}) == 8


def test_all_can_be_reached_and_used_by_the_keyboard(script: Script, opened: Opened) -> None:
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert page.locator(".skip").bounding_box()["x"] >= 0  # type: ignore[index]
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "content"
    link = page.get_by_role("link", name="Tasks")
    link.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#view-tasks h2")).to_be_visible()
    assert page.locator("#nav [aria-current=page]").inner_text() == "Tasks"
    assert page.evaluate("document.activeElement.id") == "content"  # the next Tab is in the view
    page.keyboard.press("Tab")
    page.keyboard.type("chief")
    expect(page.locator("#view-tasks tbody tr")).to_have_count(1)
    page.keyboard.press("Tab")  # the table, which scrolls
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#view-tasks th[aria-sort]")).to_have_text(re.compile("Task"))


@pytest.mark.parametrize("view", VIEWS)
def test_whatever_has_the_focus_shows_it(script: Script, opened: Opened, view: str) -> None:
    page = opened(view)
    show(page, view)
    seen = []
    for _ in range(40):
        page.keyboard.press("Tab")
        where = page.evaluate(
            """() => { const at = document.activeElement, box = at.closest("label") ?? at;
            return [at.tagName, ...[at, box].map((each) => getComputedStyle(each).outlineStyle)] }"""
        )
        if where[0] == "BODY":
            break
        seen.append(where)
    assert seen
    assert [each for each in seen if each[1:] == ["none", "none"]] == []


def test_a_reader_s_place_is_kept_while_figures_change(script: Script, opened: Opened) -> None:
    page = opened("tasks")
    script.wait_for(lambda: bool(script.queues))
    row = page.locator("#view-tasks tbody tr", has_text="worker:0")
    row.locator("a").focus()
    before = page.locator("#view-tasks tbody tr").all_inner_texts()
    tasks = {"worker:0": {"examples_per_second": 1.0}, "chief:0": {"examples_per_second": 2.0}}
    script.send("points", {"time": NOW + 5, "job": {}, "tasks": tasks})
    expect(row.locator("td").nth(1)).to_have_text("1")
    assert page.evaluate("document.activeElement.textContent") == "worker:0"
    after = page.locator("#view-tasks tbody tr").all_inner_texts()
    assert [text.split()[0] for text in after] == [text.split()[0] for text in before]


def test_only_a_change_of_what_matters_is_announced(script: Script, opened: Opened) -> None:
    page = opened()
    script.wait_for(lambda: bool(script.queues))
    expect(page.locator("#announcer")).to_contain_text(SLOW)
    page.evaluate("""() => { window.announced = 0; new MutationObserver(() => window.announced++)
        .observe(document.getElementById("announcer"), {childList: true, characterData: true, subtree: true}) }""")
    for after in range(1, 4):
        script.send("points", {"time": NOW + after, "job": {"step": 3000 + after, "loss": 1.0 / after}, "tasks": {}})
    expect(page.locator(".legend b").first).to_have_text("0.3333")
    assert page.evaluate("window.announced") == 0
    script.send("status", {**script.document["status"], "phase": "forming", "waiting_for": "worker:2: lost"})
    expect(page.locator("#announcer")).to_contain_text("forming")


def test_on_a_phone_nothing_is_wider_than_the_screen(script: Script, opened: Opened) -> None:
    with_everything(script)
    script.document["status"]["waiting_for"] = "worker:2: " + "x" * 300
    page = opened(size=PHONE, touch=True)
    for view in VIEWS:
        show(page, view)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE[0], view
        small = page.locator("button:visible, #nav a:visible, select:visible, .ranges label:visible").evaluate_all(
            "all => all.filter((each) => each.getBoundingClientRect().height < 24).map((each) => each.textContent)"
        )
        assert small == [], view  # 2.5.8: 24 pixels


def test_at_twice_the_size_of_text_nothing_is_lost(script: Script, opened: Opened) -> None:
    """1.4.10: at 400% of a window of 1280 pixels."""
    page = opened(size=(320, 640))
    for view in VIEWS:
        show(page, view)
        assert page.evaluate("document.documentElement.scrollWidth") <= 320, view


def test_who_wants_no_motion_gets_none(opened: Opened) -> None:
    page = opened(reduced=True)
    assert page.evaluate("getComputedStyle(document.documentElement).scrollBehavior") == "auto"
    assert page.evaluate("document.getAnimations().length") == 0
