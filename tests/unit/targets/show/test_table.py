"""The live table, for any status."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from trainer.job.load import build
from trainer.protocol.status import read
from trainer.targets.show import table

SPEC = build({"name": "mnist-ps", "strategy": "parameter_server", "tasks": {"ps": 1, "worker": 2}})
NAMES = ["chief:0", "worker:0", "worker:1", "ps:0"]
LONG = "worker:1 lost (killed by SIGKILL; out of memory?), the others go on and on and on and on"
STATUS: dict[str, Any] = {
    "version": 2,
    "job": "mnist-ps",
    "task": "chief:0",
    "strategy": "parameter_server",
    "restarts": 0,
    "standby": True,
    "seconds": 65.0,
    "end": None,
    "phase": "running",
    "generation": 2,
    "step": 1200,
    "steps": 5000,
    "last_checkpoint": 1000,
    "waiting_for": None,
    "seconds_left": 100.0,
    "events": [{"time": 0.0, "text": text} for text in ("too old", "generation 1 formed", LONG, "generation 2 formed")],
    "tasks": {
        "chief:0": {
            "state": "running", "step": 1200,
            "figures": {"loss": 0.25, "accuracy": 0.9125, "examples_per_second": 1234.5},
        },
        "worker:0": {
            "state": "running", "step": 700, "figures": {"loss": 7e-7, "accuracy": 0.9, "examples_per_second": 700.0},
        },
        "worker:1": {"state": "lost", "restarts": 1},
        "ps:0": {"state": "running", "step": None},
    },
}  # fmt: skip


def draw(status: dict[str, Any] | None, width: int = 80, **more: Any) -> list[str]:
    """The lines on a terminal of this width, without colours."""
    received = status and read(json.dumps(status))
    return lines_of(table.render(SPEC.name, SPEC.strategy, NAMES, received or None, 65.0, **more), width)


def lines_of(drawing: table.Drawing, width: int = 80) -> list[str]:
    console = Console(width=width, record=True, force_terminal=True, file=io.StringIO())
    console.print(drawing)
    return [line.rstrip() for line in console.export_text().splitlines()]


@pytest.mark.parametrize("width", [80, 120])
def test_a_running_job(width: int) -> None:
    lines = draw(STATUS, width, restarts={"worker:1": 2}, port=11000)
    assert all(len(line) <= width for line in lines)
    assert lines[1:4] == [
        "mnist-ps  parameter_server  running  generation 2",
        f"step 1200/5000 {'━' * 7}╺{'━' * 22} 24%  ETA 0:01:40",
        "checkpoint 1000  elapsed 0:01:05  http://127.0.0.1:11000/status",
    ]
    assert lines[4].split() == ["task", "state", "step", "loss", "accuracy", "examples/s", "restarts"]
    assert [line.split() for line in lines[6:10]] == [
        ["chief:0", "running", "1200", "0.2500", "0.9125", "1,234"],
        ["worker:0", "running", "700", "7.000e-07", "0.9000", "700"],
        ["worker:1", "lost", "-", "-", "-", "-", "3"],
        ["ps:0", "running", "-", "-", "-", "-"],
    ]
    events = [line.split("  ", 1)[1] for line in lines[10:]]
    assert [event for event in events if event != LONG] == [
        "generation 1 formed", *([f"{LONG[:69]}…"] if width == 80 else []), "generation 2 formed",
    ]  # fmt: skip


def test_before_the_chief_answers_every_task_is_starting() -> None:
    lines = draw(None)
    assert lines[1] == "mnist-ps  parameter_server  starting  generation -"
    assert lines[2].split() == ["step", "-/-", "━" * 30, "ETA", "-"]
    assert lines[3] == "checkpoint -  elapsed 0:01:05"
    assert [line.split()[:2] for line in lines[6:]] == [[name, "starting"] for name in NAMES]


def test_the_tasks_it_waits_for_are_on_one_line() -> None:
    waiting = "worker:1: has not reported (host name not known)" * 3
    (line,) = [line for line in draw({**STATUS, "phase": "forming", "waiting_for": waiting}) if "waiting" in line]
    assert line.startswith("waiting for worker:1: has not reported (host name not known)")
    assert len(line) == 80
    assert line.endswith("…")


def test_a_slow_task_is_on_one_line() -> None:
    straggler = {"task": "worker:1", "cause": "input", "text": "worker:1 is slow: its steps wait 180 ms for data" * 2}
    (line,) = [line for line in draw({**STATUS, "straggler": straggler}) if "slow" in line]
    assert line.startswith("worker:1 is slow: its steps wait 180 ms for data")
    assert len(line) == 80


@pytest.mark.parametrize("name", ["loss", "accuracy", "examples_per_second"])
@pytest.mark.parametrize("odd", [None, "x", -1, True, 1e300, float("nan"), float("inf"), [], {}, [1], {"worker:0": 1}])
def test_any_figure_can_be_drawn(name: str, odd: Any) -> None:
    status = read(json.dumps(STATUS))
    status.figures, status.tasks["worker:0"].figures = {name: odd}, {name: odd}
    assert "mnist-ps" in lines_of(table.render(SPEC.name, SPEC.strategy, NAMES, status, 65.0))[1]


@pytest.mark.parametrize("left", [None, float("nan"), float("inf"), 1e300])
def test_any_time_left_can_be_drawn(left: float | None) -> None:
    status = replace(read(json.dumps(STATUS)), seconds_left=left)
    assert lines_of(table.render(SPEC.name, SPEC.strategy, NAMES, status, 65.0))[2].endswith("ETA -")


def test_of_a_chief_of_version_1_the_time_left_is_not_known() -> None:
    old = {name: value for name, value in STATUS.items() if name != "seconds_left"}
    assert draw({**old, "version": 1, "loss": 0.5})[2].endswith("24%  ETA -")


@pytest.mark.parametrize("when", [-1, 0, 1e12, 1e300])
def test_any_time_of_an_event_can_be_drawn(when: float) -> None:
    assert draw({**STATUS, "events": [{"time": when, "text": "it happened"}]})[-1].endswith("  it happened")


def test_a_chief_that_no_longer_answers_is_named_above_its_last_status() -> None:
    lines = draw(STATUS, silent=True)
    assert lines[1] == "mnist-ps  parameter_server  no reply from the chief  generation 2"
    assert lines[2].startswith("step 1200/5000")
    assert draw(None, silent=True)[1] == "mnist-ps  parameter_server  starting  generation -"


def test_a_task_that_only_the_chief_knows_is_shown_too() -> None:
    assert draw({**STATUS, "events": [], "tasks": {"worker:7": {"state": "running"}}})[-1].split()[:2] == [
        "worker:7",
        "running",
    ]


def test_the_rate_of_all_tasks_is_in_the_head() -> None:
    assert draw({**STATUS, "figures": {"examples_per_second": 1400.2}})[1].endswith("  generation 2  1,400 examples/s")


def test_a_job_that_was_stopped_has_not_failed() -> None:
    end = {"code": 143, "message": "stopped by a signal; x"}
    assert draw({**STATUS, "phase": "failed", "end": end})[1].startswith("mnist-ps  parameter_server  stopped  ")
    assert "  failed  " in draw({**STATUS, "phase": "failed", "end": {"code": 13, "message": "x"}})[1]


def test_a_job_that_stands_still_and_one_that_ends_say_so_on_a_line() -> None:
    stalled = "no new step for 50 s: 2 tasks wait for the batch of step 94 (slow.py:15)"
    assert draw({**STATUS, "stalled": stalled})[4] == stalled
    ending = "evaluating on the test data, batch 3 of 10; then saving the exports"
    assert draw({**STATUS, "ending": ending})[4] == ending
