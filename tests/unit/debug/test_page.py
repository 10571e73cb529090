"""index.html: what a job has written never becomes HTML, and links lead to the archive's files."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from trainer.debug.archive import Entry
from trainer.debug.evidence import Evidence, Log, Moment, TaskEvidence
from trainer.debug.page import MOST_MOMENTS, page
from trainer.debug.verdict import verdict
from trainer.job.errors import Exit

HOSTILE = """<script>alert(1)</script><img src=x onerror=alert(1)> " ' & </td></table> javascript:alert(1)"""


class Tags(HTMLParser):
    """All tags with their attributes, and the text between them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def hostile() -> str:
    facts = Evidence(
        HOSTILE, HOSTILE, "failed", int(Exit.USER), f"trainer: worker:1: {HOSTILE}", waiting_for=HOSTILE,
        tasks={
            "worker:1": TaskEvidence(HOSTILE, 2, HOSTILE, HOSTILE, ended=2.0), HOSTILE: TaskEvidence("x", 3, HOSTILE),
        },
        moments=[Moment(HOSTILE, HOSTILE, 5.0, HOSTILE)],
        logs=[Log(f"{HOSTILE}.txt", f"trainer: {HOSTILE}\n{HOSTILE} lost (x)\n", HOSTILE)],
    )  # fmt: skip
    return page(facts, verdict(facts), [Entry(f"{HOSTILE}.txt", 5, HOSTILE)], HOSTILE)


def test_hostile_lines_are_shown_and_never_become_html() -> None:
    found = Tags(hostile())
    shown = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "div", "dl", "dt", "dd", "span", "code"}
    assert set(found.tags) <= shown | {"table", "tr", "th", "td", "a", "br", "p"}
    assert {name for name, _ in found.attributes} <= {"lang", "charset", "http-equiv", "content", "name", "class"} | {
        "href",
        "title",
    }
    assert "<script>alert(1)</script>" in found.text
    for name, value in found.attributes:
        assert name != "href" or not re.match(r"[a-z]+:", value or ""), value


def test_the_task_of_the_cause_may_be_hostile_too() -> None:
    """A program may have written it to history.json."""
    facts = Evidence("j", "here", "vanished", moments=[Moment("x lost (y)", HOSTILE, 5.0)])
    found = Tags(page(facts, verdict(facts), [], ""))
    assert found.text.count(HOSTILE) == 2, "in the verdict and in the history"
    assert not {"script", "img"} & set(found.tags)


def test_the_page_needs_nothing_and_may_run_nothing() -> None:
    found = Tags(hostile())
    (policy,) = [value for name, value in found.attributes if name == "content" and "default-src" in (value or "")]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert "url(" not in hostile()
    assert "@import" not in hostile()


def test_it_opens_with_the_verdict_and_then_shows_history_tasks_and_files() -> None:
    facts = Evidence(
        "j", "in containers", "failed", int(Exit.DIVERGED), "trainer: worker:0: the loss is nan at step 7",
        tasks={"worker:0": TaskEvidence("exited", 13, ended=9.0), "worker:1": TaskEvidence("exited", 13)},
        moments=[Moment("generation 1 formed: 2 tasks", time=1.0)],
        logs=[Log("logs/a.txt", "1970-01-01T00:00:08.5Z trainer: worker:0: the loss is nan at step 7\n", "worker:0")],
    )  # fmt: skip
    text = Tags(page(facts, verdict(facts), [Entry("logs/a.txt", 71)], "made now")).text
    order = ["j failed with exit code 13: worker:0: the loss is nan at step 7", "First failure", "1970-01-01 00:00:08"]
    order += ["Exit code 13", "What followed", "worker:1", "What to try", "lower the learning rate"]
    order += ["What happened", "generation 1 formed", "Tasks", "exited", "Files", "logs/a.txt", "made now"]
    at = 0
    for each in order:
        at = text.find(each, at)
        assert at >= 0, each


def test_a_long_history_is_shown_at_both_ends() -> None:
    moments = [Moment(f"number {n} lost (x)", time=float(n)) for n in range(1, 5001)]
    facts = Evidence("j", "here", "failed", 14, "worker:0: x", moments=moments)
    text = Tags(page(facts, verdict(facts), [], "")).text
    assert f"... {5000 - MOST_MOMENTS} more ..." in text
    assert "number 1 lost" in text
    assert "number 5000 lost" in text
    assert "number 2500 lost" not in text
