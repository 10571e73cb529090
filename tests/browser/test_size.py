"""A page that is open for a day, a job of a thousand tasks, long logs: what the page holds has limits."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from playwright.sync_api import CDPSession, Page, expect

from bench.costs import memory
from tests.browser import scripted
from tests.browser.conftest import Open
from tests.browser.scripted import LOST, NOW, SLOW, Document
from tests.browser.served import Script
from tests.tools.opened import opened as trainer_ui
from trainer.model_dir import layout

Opened: TypeAlias = Callable[..., Page]
DAY = 86_400
MOST_NODES = 8_000
"""Elements and texts of any view."""


def held(session: CDPSession) -> dict[str, float]:
    """Bytes of JavaScript's heap after a collection, and the nodes of the document."""
    session.send("HeapProfiler.collectGarbage")
    found = session.send("Performance.getMetrics")["metrics"]
    return {each["name"]: each["value"] for each in found}


def point(after: int, tasks: list[str]) -> Document:
    shares = {"input": 0.1, "compute": 0.4, "wait": 0.4, "network": 0.1}
    usage = {"cpu": 0.9, "memory": 7.4e8, "received": after * 1e3, "sent": 4e6}
    figures = {"step": 3000 + after, "examples_per_second": 1000.0 + after % 7, **shares, **usage}
    job = {"step": 3000 + after, "loss": 0.05 + (after % 100) / 1e4, "metrics": {"accuracy": 0.9}}
    return {"time": NOW + after, "job": job, "tasks": dict.fromkeys(tasks, figures), "eta": 60.0}


def test_a_day_of_points_leaves_the_page_as_large_as_its_first_hours(script: Script, opened: Opened) -> None:
    """One point a second, checkpoints each minute, a loss each hour, as quickly as the page takes them."""
    page = opened("resources")
    script.wait_for(lambda: bool(script.queues))
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")
    tasks = list(script.document["history"]["tasks"])
    after_hours: dict[int, dict[str, float]] = {}
    sent = 1
    for hours in (6, 12, 24):
        for first in range(sent, hours * 3600 + 1, 600):
            chunk = range(first, min(first + 600, hours * 3600 + 1))
            script.send("points", *(point(after, tasks) for after in chunk))
            script.send("mark", *(
                {"time": NOW + after, "kind": "checkpoint", "text": f"step {3000 + after}", "step": 3000 + after}
                for after in chunk if after % 60 == 0
            ))  # fmt: skip
        sent = hours * 3600 + 1
        row = page.locator("#view-resources .scroll:not(details *) tbody tr", has_text="worker:0")
        expect(row).to_contain_text(f"{hours * 3.6:.3g} MB/s", timeout=120_000)
        after_hours[hours] = held(session)
    assert after_hours[24]["JSHeapUsedSize"] < 1.25 * after_hours[6]["JSHeapUsedSize"], after_hours
    assert after_hours[24]["Nodes"] < 1.25 * after_hours[6]["Nodes"], after_hours
    page.evaluate("location.hash = '#overview'")
    shown = page.evaluate(
        "document.querySelector('#view-overview figure:nth-of-type(1) svg').querySelectorAll('*').length"
    )
    assert shown < 1000
    labels = page.locator("#view-overview .plot[role=img]").first.get_attribute("aria-label") or ""
    assert "from 2.2" in labels  # the beginning is still there


def test_a_thousand_tasks_are_found_sorted_and_paged(script: Script, opened: Opened) -> None:
    script.document = scripted.document(998)
    script.document["status"]["tasks"][LOST]["state"] = "lost"
    page = opened("tasks")
    rows = page.locator("#view-tasks tbody tr")
    expect(rows).to_have_count(50)
    assert [text.split()[0] for text in rows.all_inner_texts()[:2]] == [LOST, SLOW]
    expect(page.locator("#view-tasks .pages p")).to_have_text("1 to 50 of 1,000")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("#view-tasks .pages p")).to_have_text("51 to 100 of 1,000")
    page.get_by_label("Filter tasks").fill("worker:997")
    expect(rows).to_have_count(1)
    page.get_by_label("Filter tasks").fill("lost")
    expect(rows).to_have_count(1)
    expect(page.locator(".facts")).to_contain_text("999 of 1,000")


def test_a_thousand_tasks_keep_each_view_small(script: Script, opened: Opened) -> None:
    script.document = scripted.document(998)
    page = opened()
    for view in ("overview", "tasks", "steps", "resources", "timeline", "logs", "spec", f"task/{SLOW}"):
        page.evaluate("view => { location.hash = view }", view)
        name = view.partition("/")[0]
        expect(page.locator(f"#view-{name} h2")).to_be_visible()
        if name in ("overview", "resources"):
            expect(page.locator(f"#view-{name} .u-over").first).to_be_visible()
            assert page.locator(f"#view-{name} figure .legend").last.locator("li").count() <= 6
        assert page.locator(f"#view-{name} *").count() < MOST_NODES
    page.evaluate("location.hash = '#resources'")
    page.get_by_label("Filter tasks").locator("visible=true").fill("worker:99")
    legend = page.locator("#view-resources .legend").first
    expect(legend).to_contain_text("worker:996")
    assert legend.locator("li").count() <= 10


def test_a_thousand_tasks_send_points_and_the_page_answers(script: Script, opened: Opened) -> None:
    """While points of all tasks come, a click is answered, and the newest figures are shown in the end."""
    script.document = scripted.document(998)
    page = opened("resources")
    script.wait_for(lambda: bool(script.queues))
    tasks = list(script.document["history"]["tasks"])
    for after in range(10, 310, 10):
        script.send("points", point(after, tasks))
    page.get_by_role("link", name="Tasks").click()
    expect(page.locator("#view-tasks tbody tr").first).to_be_visible()
    page.get_by_label("Filter tasks").locator("visible=true").fill("worker:500")
    row = page.locator("#view-tasks tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("td").nth(4)).to_have_text("3,000")  # of the status
    expect(row.locator("td").nth(1)).to_have_text(f"{1000 + 300 % 7:,}")


def test_500_mb_of_logs_are_read_and_searched_in_bounded_memory(tmp_path: Path, open_page: Open) -> None:
    logs = layout.logs(tmp_path)
    logs.mkdir(parents=True)
    (layout.make_own(tmp_path) / "result.json").write_text("{}")
    for index in range(5):
        with (logs / f"worker-{index}.log").open("wb") as file:
            file.seek(100 << 20)  # a hole
            file.write(b"".join(b"line %d of %d\n" % (number, index) for number in range(100_000)))
    with trainer_ui(str(tmp_path)) as ui:
        page = open_page(f"{ui.address}#logs", clock=False, heading=False)
        items = page.locator("#view-logs li")
        expect(items).to_have_count(1000, timeout=30_000)
        page.get_by_label("Search").fill("line 99999 of 3")
        expect(items).to_have_count(1)
        page.get_by_label("Search").fill("nowhere")
        expect(items).to_have_count(0)
        assert memory(ui.process.pid)["resident"] * 2**20 < 250e6


@pytest.mark.parametrize("count", [20_000])
def test_of_long_logs_the_page_holds_the_newest_lines(script: Script, opened: Opened, count: int) -> None:
    script.lines = scripted.lines(count)
    page = opened("logs")
    items = page.locator("#view-logs li")
    expect(items).to_have_count(1000)
    expect(page.locator("#view-logs .muted")).to_have_text("The newest 1,000 lines; a search reads all.")
    script.lines += [{**line, "n": line["n"] + count} for line in scripted.lines(3000)]
    last = script.lines[-1]["text"]
    expect(items.last).to_contain_text(last)
    expect(items).to_have_count(1000)
    page.get_by_label("Search").fill("step 7/")  # the second of all lines
    expect(items).to_have_count(2)
    assert max(query.limit for query in script.queries) == 1000
