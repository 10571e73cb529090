"""What a job says is text: no log line, name or message becomes HTML, a script, or a request."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from playwright.sync_api import Page, expect

from tests.browser.scripted import NOW
from tests.browser.served import Script
from tests.browser.watch import Watch

Opened: TypeAlias = Callable[..., Page]
MARKUP = """<img src=x onerror="document.title='owned'"><script>document.title='owned'</script>"""
NAMES = [
    MARKUP,
    "__proto__",
    "constructor",
    "javascript:alert(1)",
    "%E0%A4%A",
    "worker:1/../../x",
    "'\"><b>",
    "a\u202eb",
]
VIEWS = ["overview", "tasks", "steps", "resources", "timeline", "logs", "checkpoints", "hangs", "spec"]


def hostile(script: Script) -> None:
    document = script.document
    series = document["history"]["tasks"]["worker:0"]
    row = document["status"]["tasks"]["worker:0"]
    document["history"]["tasks"] = dict.fromkeys(NAMES, series)
    document["status"] |= {"job": MARKUP, "strategy": MARKUP, "waiting_for": MARKUP, "warnings": [MARKUP],
                           "tasks": {name: {**row, "state": MARKUP} for name in NAMES}}  # fmt: skip
    document["status"]["straggler"] = {"task": MARKUP, "cause": MARKUP, "text": MARKUP}
    document["status"]["hangs"] = [
        {
            "time": NOW,
            "text": MARKUP,
            "groups": [{"tasks": NAMES, "state": MARKUP, "threads": [[[MARKUP, 1, MARKUP, True]]]}],
        }
    ]
    document["job"] |= {"spec": {MARKUP: MARKUP}, "tf_config": {name: {"task": MARKUP} for name in NAMES}}
    document["history"]["job"]["metrics"] = dict.fromkeys(NAMES, document["history"]["job"]["loss"])
    document["history"]["marks"] += [{"time": NOW, "kind": MARKUP, "text": MARKUP, "task": name} for name in NAMES]
    script.lines = [{"n": n + 1, "time": NOW, "task": name, "text": MARKUP} for n, name in enumerate(NAMES)]


def test_markup_is_shown_as_text(script: Script, opened: Opened) -> None:
    hostile(script)
    page = opened()
    for view in (*VIEWS, "task/__proto__", "task/%E0%A4%A", "nonsense/x"):
        page.evaluate("view => { location.hash = view }", view)
        known = view.partition("/")[0].replace("nonsense", "overview")
        expect(page.locator(f"#view-{known} h2")).to_be_visible()
        if view == "logs":
            expect(page.locator("#view-logs .lines li")).to_have_count(len(NAMES))
            assert page.locator("#view-logs .lines bdi").first.inner_text() == MARKUP
        assert page.locator("h1").inner_text() == MARKUP
        assert MARKUP in page.locator(".verdict").inner_text()
        assert page.locator("main img, main script, main b:not(.legend b), header img").count() == 0
        assert "owned" not in page.title().replace(MARKUP, "")


def test_the_policy_forbids_scripts_in_the_page(script: Script, opened: Opened) -> None:
    """The second wall: if markup came through, it would not run, and would make an error on the console."""
    page = opened()
    policy = page.evaluate("fetch('/').then((page) => page.headers.get('Content-Security-Policy'))")
    rules = dict(rule.strip().partition(" ")[::2] for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert {rules[name] for name in ("script-src", "style-src", "connect-src", "img-src")} == {"'self'"}
    assert "unsafe" not in policy


def test_the_policy_forbids_to_make_elements_of_a_text(script: Script, opened: Opened, watch: Watch) -> None:
    watch.expected += ["require-trusted-types-for", "TrustedHTML"]
    page = opened()
    made = page.evaluate("""() => {
      try { document.body.innerHTML = "<b>text</b>"; return "made"; } catch (error) { return error.name; }
    }""")
    assert made == "TypeError"


def test_a_line_cannot_change_how_others_are_read(script: Script, opened: Opened) -> None:
    script.lines = [
        {"n": 1, "time": NOW, "task": "worker:0", "text": "\x1b[31mred\x1b[0m \x07 a\u202eb \x00"},
        {"n": 2, "time": NOW, "task": "worker:0", "text": "x" * 1_000_000},
        {"n": 3, "time": None, "task": None, "text": "no time"},
    ]
    lines = opened("logs").locator("#view-logs .lines bdi")
    expect(lines).to_have_count(3)
    assert lines.first.text_content() == "red \u2407 a\ufffdb \u2400"
    assert len(lines.nth(1).text_content() or "") <= 4001


def test_a_regular_expression_in_a_search_is_a_text(script: Script, opened: Opened) -> None:
    script.lines = [{"n": 1, "time": NOW, "task": "worker:0", "text": "a(b+ <c> .*"}]
    page = opened("logs")
    page.get_by_label("Search").fill("(B+ <c>")
    expect(page.locator("#view-logs mark")).to_have_text("(b+ <c>")
