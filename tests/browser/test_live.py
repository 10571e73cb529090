"""The page follows its job: events, a chief that is gone, the job's end, documents that lack things."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable
from typing import TypeAlias

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Open
from tests.browser.scripted import LOST, NOW, Document
from tests.browser.served import Script, served
from tests.browser.watch import Watch
from trainer.page import routes

Opened: TypeAlias = Callable[..., Page]
VIEWS = ["overview", "tasks", "steps", "resources", "timeline", "logs", "checkpoints", "hangs", "spec", "task/worker:1"]


def connected(script: Script) -> None:
    """Waits until the page reads its events."""
    script.wait_for(lambda: bool(script.queues))


def test_a_point_moves_the_charts_and_tables(script: Script, opened: Opened) -> None:
    page = opened("tasks")
    connected(script)
    point = {"time": NOW + 5, "job": {"step": 3010, "loss": 0.05}, "tasks": {"worker:0": {"examples_per_second": 77.0}}}
    script.send("points", {**point, "eta": 60.0, "goodput": 0.5})
    expect(page.locator("#view-tasks tr", has_text="worker:0").locator("td").nth(1)).to_have_text("77")
    page.evaluate("location.hash = '#overview'")
    loss = page.locator("figure", has=page.locator("h3:text-is('Loss')"))
    expect(loss.locator(".legend b").first).to_have_text("0.05")
    assert page.locator("#header dd").first.inner_text() == "1 min (00:01:00)"


def test_a_killed_task_appears_in_the_head_and_on_the_time_line(script: Script, opened: Opened) -> None:
    page = opened("timeline")
    connected(script)
    status = copy.deepcopy(script.document["status"])
    status["tasks"][LOST]["state"] = "lost"
    script.send("status", status)
    mark = {"time": NOW + 1, "kind": "lost", "text": f"{LOST}: its child was killed by SIGKILL", "task": LOST}
    script.send("mark", mark, mark)  # the second is the first again
    expect(page.locator(".verdict li").first).to_contain_text(f"{LOST} is lost.")
    rows = page.locator("#view-timeline tbody tr", has_text="killed by SIGKILL")
    expect(rows).to_have_count(2)  # with the loss that the document has
    expect(page.locator("#announcer")).to_contain_text(f"{LOST} is lost.")


def test_while_a_generation_begins_no_step_is_made_yet(script: Script, opened: Opened) -> None:
    script.document["status"]["straggler"] = None
    script.document["status"]["figures"] = {}
    assert "5 of 5 tasks run; no step is made yet." in opened().locator(".verdict").inner_text()


def test_a_figure_that_some_points_lack_is_shown_all_the_time(script: Script, opened: Opened) -> None:
    """Shares of a step's time are known after some steps only; points come each second."""
    page = opened("steps")
    connected(script)
    rates = {"worker:0": {"examples_per_second": 77.0}}
    script.send("points", {"time": NOW + 5, "job": {}, "tasks": rates})
    row = page.locator("#view-steps tbody tr", has_text="worker:0")
    expect(row).to_contain_text("77")
    share = script.document["history"]["tasks"]["worker:0"]["input"][-1]
    assert row.locator("td").nth(2).inner_text() == f"{share:.0%}"


def test_a_straggler_comes_and_goes(script: Script, opened: Opened) -> None:
    script.document["status"]["straggler"] = None
    page = opened("steps")
    connected(script)
    found = {"task": "worker:0", "cause": "network", "text": "worker:0 is slow: its network"}
    script.send("status", {**script.document["status"], "straggler": found})
    expect(page.locator("#view-steps .answer")).to_have_text(found["text"])
    script.send("status", {**script.document["status"], "straggler": None})
    expect(page.locator("#view-steps .answer")).to_contain_text("No task is slow")


class Slow(Script):
    """Once a page is subscribed, something happens after its document was written and before that arrives."""

    async def state(self) -> str:
        if self.queues:
            self.document["status"]["step"] = 5000
        text = await super().state()
        if self.queues:
            self.send("mark", {"time": NOW + 1, "kind": "lost", "text": f"{LOST}: on its way", "task": LOST})
            await asyncio.sleep(0.3)
        return text


def test_what_happens_while_the_document_is_on_its_way_is_not_lost(open_page: Open) -> None:
    with served(Slow()) as url:
        page = open_page(f"{url}#timeline")
        expect(page.locator(".share")).to_contain_text("step 5,000")
        expect(page.locator("#view-timeline tbody tr", has_text="on its way")).to_have_count(1)


def test_while_the_chief_does_not_answer_the_page_says_since_when(script: Script, opened: Opened, watch: Watch) -> None:
    watch.expected.append("ERR_")
    with served(script) as url:
        page = opened()
        connected(script)
    expect(page.locator(".notice")).to_contain_text("The chief does not answer since 00:00:00")
    assert page.locator("h1").inner_text() == "mnist-mwms"  # what it knew is still there
    for step in (5000, 6000):  # a page stays open over several chiefs
        script.document["status"]["step"] = step
        with served(script, port=int(url.rpartition(":")[2].strip("/"))):
            expect(page.locator(".share")).to_contain_text(f"step {step:,}", timeout=30_000)
            expect(page.locator(".notice")).to_be_hidden()
            connected(script)
        expect(page.locator(".notice")).to_contain_text("The chief does not answer since")


def test_a_page_too_many_gets_the_document_alone(
    script: Script, opened: Opened, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routes, "MOST_READERS", 0)
    watch.expected.append("503")
    page = opened()
    script.document["status"]["step"] = 5000
    expect(page.locator(".share")).to_contain_text("step 5,000", timeout=30_000)
    expect(page.locator(".notice")).to_be_hidden()
    assert sum(url.endswith("/events") for url in watch.requests) in (1, 2)


def test_after_the_job_the_last_state_stays(script: Script, opened: Opened, watch: Watch) -> None:
    watch.expected.append("ERR_")
    with served(script):
        page = opened()
        connected(script)
        script.send("status", {**script.document["status"], "phase": "done", "end": {"code": 0, "message": ""}})
        expect(page.locator(".phase")).to_have_text("done")
    expect(page.locator(".notice")).to_contain_text("The job is over and its chief has left")


def test_from_files_the_page_asks_for_no_events(script: Script, opened: Opened, watch: Watch) -> None:
    script.document["live"] = False
    page = opened()
    expect(page.locator(".notice")).to_contain_text("From files, as of 00:00:00")
    assert not any(url.endswith("/events") for url in watch.requests)
    page.evaluate("location.hash = '#logs'")
    expect(page.locator("#view-logs .lines li")).to_have_count(len(script.lines))


def nothing(_: Document) -> Document:
    return {}


def older(document: Document) -> Document:
    """Of a version that had fewer fields, and a newer one that has more."""
    for name in ("eta", "goodput"):
        del document[name]
    del document["status"]["straggler"], document["status"]["hangs"]
    del document["history"]["tasks"], document["job"]["tf_config"]
    document["surprise"] = [{"a": None}]
    document["version"] = 99
    return document


def nulls(document: Document) -> Document:
    """Every figure unknown."""

    def without(value: object) -> object:
        if isinstance(value, dict):
            return {name: without(each) for name, each in value.items()}
        if isinstance(value, list):
            return [without(each) for each in value]
        return value if isinstance(value, str) else None

    document["status"] = without(document["status"])
    for series in document["history"]["tasks"].values():
        for name, column in series.items():
            series[name] = column if name == "time" else [None] * len(column)
    return {**document, "eta": None, "goodput": None, "job": {"spec": None}}


def wrong(document: Document) -> Document:
    """Other types than those that are expected."""
    return {
        **document,
        "status": {
            "job": 7,
            "step": "many",
            "steps": [],
            "tasks": [],
            "phase": 3,
            "warnings": None,
            "end": None,
            "straggler": "worker:1",
            "hangs": [None, {"time": "x", "groups": [{"tasks": None, "threads": [None]}]}],
        },
        "history": {"job": {"time": [1, 2], "loss": [None], "metrics": 4}, "tasks": {"a": None}, "marks": [None, {}]},
        "job": None,
    }


@pytest.mark.parametrize("change", [nothing, older, nulls, wrong])
def test_every_view_bears_a_document_that_lacks_things(
    script: Script, opened: Opened, change: Callable[[Document], Document]
) -> None:
    """No error on the console: the fixture looks."""
    script.document = change(script.document)
    page = opened(heading=False)
    expect(page.locator(".phase")).not_to_have_text("loading")
    for view in VIEWS:
        page.evaluate("view => { location.hash = view }", view)
        expect(page.locator(f"#view-{view.partition('/')[0]} h2")).to_be_visible()
    assert ("some of it may be missing" in page.locator(".notice").inner_text()) == (change is older)
