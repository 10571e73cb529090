"""Each view shows what the document says, by figures that the tests compute themselves."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import yaml
from playwright.sync_api import Page, expect

from tests.browser.scripted import LOST, NOW, SLOW
from tests.browser.served import Script

Opened: TypeAlias = Callable[..., Page]
STALLED = "no new step for 50 s: 2 tasks wait for the batch of step 94 (slow.py:15)"
ENDING = "evaluating on the test data, batch 3 of 10; then saving the exports, checking the exports"


def rows_of(page: Page, view: str) -> list[list[str]]:
    """Texts of the cells of a view's table, as they are seen."""
    expect(page.locator(f"#view-{view} tbody tr").first).to_be_visible()
    rows = page.locator(f"#view-{view} .scroll > table > tbody").last.locator("tr").all()
    return [[cell.strip() for cell in row.locator("th, td").all_inner_texts()] for row in rows]


def columns_of(page: Page, view: str) -> list[str]:
    return [text.strip() for text in page.locator(f"#view-{view} thead").last.locator("th").all_inner_texts()]


def facts_of(page: Page, within: str) -> dict[str, str]:
    names, texts = (page.locator(f"{within} .facts {kind}").all_inner_texts() for kind in ("dt", "dd"))
    return dict(zip(names, texts, strict=True))


def newest(script: Script, column: str) -> dict[str, Any]:
    return {name: series[column][-1] for name, series in script.document["history"]["tasks"].items()}


def test_the_head_says_how_far_the_job_is_and_when_it_ends(script: Script, opened: Opened) -> None:
    page = opened()
    status = script.document["status"]
    assert page.locator("h1").inner_text() == status["job"]
    assert page.locator(".phase").inner_text() == "running"
    share = status["step"] / status["steps"]
    assert float(page.locator("progress").get_attribute("value") or 0) == share
    assert page.locator(".share").inner_text() == f"step {status['step']:,} of {status['steps']:,}, {share:.0%}"
    facts = facts_of(page, "#header")
    assert facts["Left"] == "19 min 30 s (00:19:30)"  # 1170 s after NOW, which is midnight
    assert facts["Elapsed"] == "13 min 20 s"
    assert facts["Goodput"] == f"{script.document['goodput']:.0%}"
    assert facts["Checkpoint"] == f"step 2,800, {NOW - status['checkpoint_time']:.0f} s ago"
    assert facts["Tasks running"] == "5 of 5"
    assert page.title() == "running 40% · mnist-mwms · trainer"


def test_the_head_names_the_straggler_with_its_cause(script: Script, opened: Opened) -> None:
    assert opened().locator(".verdict").inner_text().endswith(script.document["status"]["straggler"]["text"])


def test_without_a_straggler_nothing_stands_out(script: Script, opened: Opened) -> None:
    script.document["status"]["straggler"] = None
    page = opened("steps")
    assert "Nothing stands out: 5 of 5 tasks run." in page.locator(".verdict").inner_text()
    rates = newest(script, "examples_per_second")
    least = min(rates, key=lambda name: rates[name])
    share = rates[least] / statistics.median(rates.values())
    assert page.locator("#view-steps .answer").inner_text() == (
        f"No task is slow: the slowest, {least}, makes {share:.0%} of the median."
    )


@pytest.mark.parametrize(
    ("change", "phase", "text"),
    [
        ({"phase": "forming", "waiting_for": "worker:2: not seen yet"}, "forming", "Waits for worker:2: not seen yet"),
        ({"phase": "failed", "end": {"code": 13, "message": "the loss is NaN at step 7"}}, "failed",
         "Failed with exit code 13: the loss is NaN at step 7"),
        ({"phase": "done", "end": {"code": 0, "message": ""}}, "done", "The job is done."),
        ({"warnings": ["reports are not signed"]}, "running", "reports are not signed"),
        ({"evaluating": True}, "evaluating", SLOW),
        ({"stalled": STALLED}, "running", STALLED),
        ({"finishing": True, "ending": ENDING}, "finishing", f"All steps are made: {ENDING}."),
    ],
    ids=["waits", "failed", "done", "warning", "evaluating", "stalled", "finishing"],
)  # fmt: skip
def test_the_head_says_what_the_job_does(
    script: Script, opened: Opened, change: dict[str, Any], phase: str, text: str
) -> None:
    script.document["status"] |= change
    page = opened()
    assert page.locator(".phase").inner_text() == phase
    assert text in page.locator(".verdict").inner_text()


def test_a_job_that_stands_still_stands_out_in_amber(script: Script, opened: Opened) -> None:
    script.document["status"] |= {"stalled": STALLED, "straggler": None}
    page = opened()
    (line,) = page.locator(".verdict li").all()
    assert line.get_attribute("class") == "warn"
    assert line.inner_text().endswith(STALLED)


def test_after_the_last_step_it_says_what_is_left(script: Script, opened: Opened) -> None:
    script.document["status"] |= {"finishing": True, "ending": ENDING}
    script.document["eta"] = 0
    assert facts_of(opened(), "#header")["Left"] == ENDING


def ends(script: Script, kind: str, code: int, rows: list[list[str]], happened: list[list[object]]) -> str:
    """Ends the scripted job; returns the line with which its page begins."""
    headline = f"mnist-mwms {kind}: x < y & z"
    script.document["status"] |= {"phase": kind, "end": {"code": code, "message": "x"}, "straggler": None}
    script.document["outcome"] = {"kind": kind, "headline": headline, "rows": rows, "happened": happened}
    return headline


@pytest.mark.parametrize(
    ("kind", "code", "level"), [("done", 0, "good"), ("failed", 2, "bad"), ("stopped", 143, "warn")]
)
def test_the_page_of_a_job_that_has_ended_begins_with_how(
    script: Script, opened: Opened, kind: str, code: int, level: str
) -> None:
    rows = [["test_accuracy", "0.97"], ["in the code", "slow.py:9"], ["to try", "correct <that> line"]]
    headline = ends(script, kind, code, rows, [[NOW - 60, "worker:1 lost (killed by SIGKILL), re-forming"]])
    page = opened()
    assert page.locator(".phase").inner_text() == kind
    (line,) = page.locator(".verdict li").all()
    assert line.get_attribute("class") == level
    assert line.inner_text().endswith(headline)
    names, texts = (page.locator(f".outcome {each}").all_inner_texts() for each in ("dt", "dd"))
    assert [[*each] for each in zip(names, texts, strict=True)] == rows
    assert page.locator(".outcome li").inner_text() == "23:59:00 worker:1 lost (killed by SIGKILL), re-forming"
    above = [page.locator(each).bounding_box() for each in (".verdict", ".outcome", "#header .facts")]
    tops = [box["y"] for box in above if box]
    assert len(tops) == 3
    assert tops == sorted(tops)


def test_the_end_of_a_job_comes_to_a_page_that_is_open(script: Script, opened: Opened) -> None:
    page = opened()
    expect(page.locator(".outcome")).to_be_hidden()
    script.send("outcome", {"kind": "done", "headline": "mnist-mwms succeeded after 3 min", "rows": [], "happened": []})
    expect(page.locator(".outcome")).to_be_visible()
    assert "No task was lost." in page.locator(".outcome").inner_text()


def test_a_job_of_an_older_chief_that_was_stopped_has_not_failed(script: Script, opened: Opened) -> None:
    script.document["status"] |= {"phase": "failed", "end": {"code": 143, "message": "stopped by a signal"}}
    page = opened()
    assert page.locator(".phase").inner_text() == "stopped"
    assert "Stopped: stopped by a signal" in page.locator(".verdict").inner_text()


def test_a_lost_task_comes_first_everywhere(script: Script, opened: Opened) -> None:
    script.document["status"]["tasks"][LOST]["state"] = "lost"
    page = opened("tasks")
    assert page.locator(".verdict li").first.inner_text().endswith(f"{LOST} is lost.")
    assert [row[0] for row in rows_of(page, "tasks")][:2] == [LOST, SLOW]


def test_losses_and_metrics_are_drawn_with_the_scores(script: Script, opened: Opened) -> None:
    page = opened()
    job = script.document["history"]["job"]
    figures = {figure.locator("h3").inner_text(): figure for figure in page.locator("#view-overview figure").all()}
    for title, values, scores in (
        ("Loss", job["loss"], job["scores"]["loss"]),
        ("accuracy", job["metrics"]["accuracy"], job["scores"]["accuracy"]),
    ):
        shown = figures[title].locator(".legend b").all_inner_texts()
        last = [each[-1] for each in (values, [score for score in scores if score is not None])]
        assert [float(text) for text in shown] == [pytest.approx(value, rel=1e-3) for value in last]
        summary = figures[title].locator("[role=img]").get_attribute("aria-label") or ""
        assert f"lowest {min(values):.4g}" in summary
        assert "by the evaluator" in summary


def test_a_score_that_holds_is_one_dot(script: Script, opened: Opened) -> None:
    """The server repeats the last score in each point."""
    job = script.document["history"]["job"]
    job["scores"]["loss"] = [None] * 20 + [0.5] * 70 + [0.25] * 70
    page = opened()
    loss = page.locator("figure", has=page.locator("h3:text-is('Loss')"))
    loss.locator("summary").click()
    expect(loss.locator("tbody tr")).to_have_count(40)
    scores = loss.locator("tbody td:nth-child(3)").all_inner_texts()
    assert len([text for text in scores if text != "-"]) <= 2
    assert loss.locator(".legend b").last.inner_text() == "0.25"


def test_a_chart_has_its_points_as_a_table(script: Script, opened: Opened) -> None:
    page = opened()
    figure = page.locator("figure", has=page.locator("h3:text-is('Loss')"))
    figure.locator("summary").click()
    expect(figure.locator("tbody tr").first).to_be_visible()
    job = script.document["history"]["job"]
    last = figure.locator("tbody tr").last.locator("th, td").all_inner_texts()
    assert last[0] == "2026-11-25 00:00:00"
    assert float(last[1]) == pytest.approx(job["loss"][-1], rel=1e-3)
    assert figure.locator("tbody tr").count() <= 40


def test_examples_per_second_are_shown_by_task_and_beside_the_median(script: Script, opened: Opened) -> None:
    page = opened()
    legend = page.locator("figure", has=page.locator("h3:text-is('Examples/s by task')")).locator(".legend li")
    shown = {text.rpartition(" ")[0]: text.rpartition(" ")[2] for text in legend.all_inner_texts()}
    rates = newest(script, "examples_per_second")
    expected = {**rates, "median": statistics.median(rates.values())}
    assert shown == {name: f"{rate:,.0f}" for name, rate in expected.items()}


def test_the_table_of_tasks_agrees_with_the_document(script: Script, opened: Opened) -> None:
    page = opened("tasks")
    rows = {row[0]: dict(zip(columns_of(page, "tasks"), row, strict=True)) for row in rows_of(page, "tasks")}
    assert rows.keys() == script.document["status"]["tasks"].keys()
    rates = newest(script, "examples_per_second")
    middle = statistics.median(rates.values())
    for name, rate in rates.items():
        assert rows[name]["Examples/s"] == f"{rate:,.0f}"
        assert rows[name]["Of median"] == f"{rate / middle:.0%}"
        assert rows[name]["State"] == ("running, slow" if name == SLOW else "running")
        assert rows[name]["Memory"] == f"{newest(script, 'memory')[name] / 1e6:.3g} MB"
    assert rows["evaluator:0"]["Examples/s"] == "-"
    assert next(iter(rows)) == SLOW


def test_a_table_is_sorted_by_its_titles_and_unknown_values_stay_last(script: Script, opened: Opened) -> None:
    page = opened("tasks")
    rates = newest(script, "examples_per_second")
    order = sorted(rates, key=lambda name: rates[name], reverse=True)
    title = page.locator("#view-tasks thead button", has_text="Examples/s")
    title.click()
    assert [row[0] for row in rows_of(page, "tasks")] == [*order, "evaluator:0"]
    assert page.locator("#view-tasks th[aria-sort]").inner_text().startswith("Examples/s")
    title.click()
    assert [row[0] for row in rows_of(page, "tasks")] == [*order[::-1], "evaluator:0"]
    assert page.locator("#view-tasks th[aria-sort=ascending]").count() == 1


def test_a_step_s_time_is_shown_by_part_and_the_straggler_first(script: Script, opened: Opened) -> None:
    page = opened("steps")
    assert page.locator("#view-steps .answer").inner_text() == script.document["status"]["straggler"]["text"]
    titles, rows = columns_of(page, "steps"), rows_of(page, "steps")
    parts = {
        "input": "input",
        "compute": "compute",
        "wait for others": "wait",
        "network": "network",
        "between steps": "between",
    }
    assert (rows[0][0], rows[0][titles.index("Why")]) == (SLOW, "input")
    for row in rows:
        for title, column in parts.items():
            assert row[titles.index(title)] == f"{newest(script, column)[row[0]]:.0%}"
    bar = page.locator("#view-steps .split").first
    whole = bar.evaluate("bar => bar.clientWidth")
    width = bar.locator("i").first.evaluate("part => part.getBoundingClientRect().width")
    assert width / whole == pytest.approx(newest(script, "input")[SLOW], abs=0.02)


def test_resources_are_shown_by_task(script: Script, opened: Opened) -> None:
    page = opened("resources")
    rows = {row[0]: dict(zip(columns_of(page, "resources"), row, strict=True)) for row in rows_of(page, "resources")}
    for name, value in newest(script, "cpu").items():
        assert rows[name]["CPU"] == f"{value:.2f}".rstrip("0").rstrip(".") + " cores"
        assert rows[name]["Received"] == f"{newest(script, 'received')[name] / 1e6:.3g} MB/s"
        assert rows[name]["GPU"] == "-"
    titles = page.locator("#view-resources figure:visible h3").all_inner_texts()
    assert titles == ["CPU, cores", "Memory", "Network, received", "Network, sent"]
    cpu = newest(script, "cpu")
    low, high = (choose(cpu, key=lambda name: cpu[name]) for choose in (min, max))
    summary = page.locator("#view-resources .summary").first.inner_text()
    assert re.fullmatch(f"now: lowest {low} .*, median .*, highest {high} .*", summary)


def test_gpus_are_shown_where_there_are_some(script: Script, opened: Opened) -> None:
    series = script.document["history"]["tasks"][SLOW]
    series["gpu"] = [0.5] * len(series["time"])
    page = opened("resources")
    assert "GPU, use" in page.locator("#view-resources figure:visible h3").all_inner_texts()
    row = next(row for row in rows_of(page, "resources") if row[0] == SLOW)
    assert row[columns_of(page, "resources").index("GPU")] == "50%"


def test_the_time_line_has_all_marks_with_their_reasons(script: Script, opened: Opened) -> None:
    page = opened("timeline")
    marks = script.document["history"]["marks"]
    rows = rows_of(page, "timeline")
    assert len(rows) == len(marks)
    assert [row[1] for row in rows] == [mark["kind"] for mark in reversed(marks)]
    for row, mark in zip(rows, reversed(marks), strict=True):
        assert row[2].startswith(mark["text"])
        assert row[3] == (mark["task"] or "")
    assert page.locator("#view-timeline svg .kind-lost").count() == 1
    assert page.locator("#view-timeline svg [class^=generation]").count() == 2
    page.locator("#view-timeline select").select_option("lost")
    assert [row[3] for row in rows_of(page, "timeline")] == [LOST]


def test_checkpoints_have_age_size_and_pause(script: Script, opened: Opened) -> None:
    page = opened("checkpoints")
    saved = [mark for mark in script.document["history"]["marks"] if mark["kind"] == "checkpoint"]
    rows = rows_of(page, "checkpoints")
    assert [row[0] for row in rows] == [f"{mark['step']:,}" for mark in reversed(saved)]
    assert rows[0][2:] == ["52 s ago", "4.21 MB", f"{saved[-1]['seconds'] * 1000:.0f} ms"]
    facts = facts_of(page, "#view-checkpoints")
    assert facts["Training paused"] == "2.1 s"
    assert facts["Written"] == str(len(saved))


def test_hangs_are_groups_of_stacks(script: Script, opened: Opened) -> None:
    frames = [["mymodel.py", 41, "read", True], ["dataset_ops.py", 120, "__next__", False]]
    groups = [
        {"tasks": [SLOW], "doing": "waiting for the batch of step 7", "threads": [frames, [["a.py", 1, "f", False]]]},
        {"tasks": ["worker:10", "chief:0", "worker:9", "worker:8"], "doing": "in step 7", "threads": []},
    ]
    script.document["status"]["hangs"] = [{"time": NOW - 9, "text": f"{SLOW} waits in data()", "groups": groups}]
    page = opened("hangs")
    view = page.locator("#view-hangs")
    assert view.locator("h4").all_inner_texts() == [
        f"1 task: {SLOW}", "4 tasks: chief:0, worker:8 to worker:10"
    ]  # fmt: skip
    assert view.locator(".frames").count() == 2
    assert view.locator(".frames").first.locator("li").all_inner_texts() == [
        "mymodel.py:41 read", "dataset_ops.py:120 __next__"
    ]  # fmt: skip
    assert view.locator(".theirs").all_inner_texts() == ["mymodel.py:41 read"]
    assert view.get_by_text("waiting for the batch of step 7").count() == 1
    assert page.locator(".verdict li").first.inner_text().endswith(f"Hangs since 23:59:51: {SLOW} waits in data()")


def test_the_spec_and_each_tf_config_are_shown(script: Script, opened: Opened) -> None:
    page = opened("spec")
    text = page.locator("#view-spec pre").first.inner_text()
    assert "strategy: multi_worker_mirrored" in text.splitlines()
    assert "  learning_rate: 0.0001" in text.splitlines()
    page.locator("#view-spec select").select_option(SLOW)
    config = page.locator("#view-spec pre").last.inner_text()
    assert page.evaluate("JSON.parse", config) == script.document["job"]["tf_config"][SLOW]


def test_the_spec_that_is_shown_is_yaml(script: Script, opened: Opened) -> None:
    script.document["job"]["spec"] |= {
        "env": {"A": "yes", "B": "1e3", "C": "a: b # c", "D": "", "E": "two\nlines", "F": "<b>", "0": "null"},
        "program": ["python", "-c", "x"], "data": {"train": {"path": "~/x"}}, "none": None, "list": [[1, 2], {"a": []}],
    }  # fmt: skip
    assert yaml.safe_load(opened("spec").locator("#view-spec pre").first.inner_text()) == script.document["job"]["spec"]


def test_a_task_has_a_view_of_its_own(script: Script, opened: Opened) -> None:
    page = opened("tasks")
    page.locator("#view-tasks a", has_text=SLOW).click()
    expect(page.locator("#view-task h2")).to_have_text(SLOW)
    assert page.locator("#view-task .answer").inner_text() == script.document["status"]["straggler"]["text"]
    assert facts_of(page, "#view-task")["State"] == "running, slow (input)"
    parts = page.locator("#view-task figure", has=page.get_by_role("heading", name="Where a step's time goes", level=3))
    shown = parts.locator(".legend b").all_inner_texts()
    assert shown == [f"{newest(script, part)[SLOW]:.0%}" for part in ("input", "compute", "wait", "network", "between")]
    page.locator("#view-task a", has_text="Its log").click()
    expect(page.locator("#view-logs li").first).to_be_visible()
    assert set(page.locator("#view-logs li a").all_inner_texts()) == {SLOW}


def test_charts_zoom_together_and_back(script: Script, opened: Opened) -> None:
    page = opened()
    over = page.locator("#view-overview .u-over").first
    box = over.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 3 / 4, box["y"] + 50, steps=4)
    page.mouse.up()
    reset = page.get_by_role("button", name="Reset zoom")
    expect(reset).to_be_visible()
    figures = page.locator("figure", has=page.locator("details"))
    for figure in figures.all():
        figure.locator("summary").click()
        expect(figure.locator("tbody tr").first).to_be_visible()
        times = figure.locator("tbody th").all_inner_texts()
        assert "2026-11-24 23:52:00" < times[0] < times[-1] < "2026-11-24 23:58:00"
    reset.click()
    expect(figures.first.locator("tbody tr").last.locator("th")).to_have_text("2026-11-25 00:00:00")


def test_logs_of_all_tasks_are_merged_and_searched(script: Script, opened: Opened) -> None:
    page = opened("logs")
    items = page.locator("#view-logs .lines li")
    expect(items).to_have_count(len(script.lines))
    assert items.last.inner_text() == f"23:59:58 {script.lines[-1]['task']} {script.lines[-1]['text']}".replace(
        "23:59:58", items.last.locator("time").inner_text()
    )
    page.get_by_label("Search").fill("STEP 14/")
    expect(items).to_have_count(1)
    assert page.locator("#view-logs mark").inner_text() == "step 14/"
    page.get_by_label("Search").fill("no such text")
    expect(page.locator("#view-logs .muted")).to_have_text("No line matches.")
    page.get_by_label("Search").fill("")
    page.get_by_label("Task").select_option("worker:2")
    mine = [line for line in script.lines if line["task"] == "worker:2"]
    expect(items).to_have_count(len(mine))
    assert set(page.locator("#view-logs .lines a").all_inner_texts()) == {"worker:2"}


def test_new_log_lines_are_appended_while_the_reader_follows(script: Script, opened: Opened) -> None:
    page = opened("logs")
    items = page.locator("#view-logs .lines li")
    expect(items).to_have_count(len(script.lines))
    script.lines.append({"n": 10_000, "time": NOW, "task": "chief:0", "text": "the newest line"})
    expect(items.last).to_contain_text("the newest line")
    at_end = "list => list.scrollTop + list.clientHeight >= list.scrollHeight - 2"
    assert page.locator("#view-logs .lines").evaluate(at_end)
    assert script.queries[-1].after >= script.lines[-2]["n"]
