"""The chief's /status as other programs of trainer read it."""

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from tests.unit.cli.fake import STATUS
from trainer.protocol.status import End, JobStatus, TaskRow, read

SENT: dict[str, Any] = json.loads(json.dumps(STATUS.document()))


@pytest.mark.parametrize(
    "status",
    [
        STATUS,
        replace(STATUS, figures={"loss": None, "line": "x", "top 5": 0.5}, last_checkpoint=500, waiting_for="worker:1"),
        replace(STATUS, seconds_left=90.5, goodput=0.875, line="task=chief:0", seconds_input=1.5, evaluating=True),
        replace(STATUS, phase="failed", tasks={}, end=End(13, "the loss is nan")),
    ],
)
def test_what_is_sent_is_what_is_read(status: JobStatus) -> None:
    assert read(json.dumps(status.document())) == status


def test_a_field_of_a_later_version_harms_nothing() -> None:
    rows = {"worker:0": {**SENT["tasks"]["worker:0"], "node": "n1"}}
    assert read(json.dumps({**SENT, "colour": [1], "tasks": rows})) == STATUS


@pytest.mark.parametrize("figures", [{"a": [1]}, {"a": 10**400}, {"a\n": 1}, {"a": math.nan}, {"": 1}, {"a": {"b": 1}}])
def test_whatever_a_child_reports_its_job_s_status_can_be_read(figures: dict[str, object]) -> None:
    task = TaskRow(state="running", figures={**figures, "loss": 0.5})
    sent = replace(STATUS, figures=figures, line="a\0b", peer_lost="x" * 9000, tasks={"worker:0": task})
    found = read(json.dumps(sent.document()))
    assert (found.figures, found.line, found.tasks["worker:0"].figures) == ({}, "a b", {"loss": 0.5})


OF_CHILD = {"step": 5, "steps": 2000, "line": "task=chief:0", "seconds_input": 1.5, "evaluating": True, "pid": 7}
FIGURES = {"loss": 0.5, "examples_per_second": 10.0, "top 5": 0.25, "note": "x", "goodput": "theirs"}
STRAGGLER = {"task": "worker:0", "cause": "input", "text": "worker:0 is slow"}
SHARES = {"input": 0.5, "compute": 0.25, "wait": None, "network": None, "between": 0.25}
OF_JOB = {
    "job": "j", "task": "chief:0", "strategy": "multi_worker_mirrored", "phase": "running", "generation": 2,
    "restarts": 1, "standby": False, "last_checkpoint": 500, "checkpoint_time": 1.7e9, "checkpoint_bytes": 1000,
    "restarts_by_cause": {"killed": 1}, "waiting_for": None, "seconds": 3.5, "end": None, "straggler": STRAGGLER,
    "events": [{"time": 1.5, "text": "generation 1 formed: 2 tasks", "kind": "formed", "task": None}],
    "hangs": [], "warnings": ["a warning"], "refused_reports": {"unsigned": 1},
}  # fmt: skip
ROW = {"state": "running", "generation": 2, "restarts": 1, "standby": True, "shares": SHARES}
VERSION_1 = {**FIGURES, **OF_CHILD, **OF_JOB, "version": 1, "tasks": {"worker:0": {**FIGURES, **OF_CHILD, **ROW}}}
"""As 0.2 sent it: figures beside the fields."""
VERSION_2 = {
    **OF_CHILD, **OF_JOB, "version": 2, "figures": FIGURES,
    "tasks": {"worker:0": {**OF_CHILD, **ROW, "figures": FIGURES}},
}  # fmt: skip


def test_a_status_of_version_1_reads_to_the_same_values_as_one_of_version_2() -> None:
    found = read(json.dumps(VERSION_1))
    assert found == read(json.dumps(VERSION_2))
    assert (found.loss, found.metrics, found.line) == (0.5, {"top 5": 0.25}, "task=chief:0")
    assert (found.tasks["worker:0"].examples_per_second, found.tasks["worker:0"].step) == (10.0, 5)
    assert (found.seconds_left, found.goodput) == (None, None)


def test_images_of_0_1_are_read() -> None:
    """They sent no version, and no `standby` of an absent task."""
    old = {name: value for name, value in VERSION_1.items() if name != "version"}
    old["tasks"] = {"worker:0": {"state": "absent", "generation": 0, "restarts": 0}}
    new = read(json.dumps(VERSION_2))
    assert read(json.dumps(old)) == replace(new, tasks={"worker:0": TaskRow(state="absent")})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"version": 3, "phase": "resting"},
            "version: 3: this trainer reads versions up to 2",
        ),
        ({"phase": "resting"}, "phase: Input should be 'forming', 'running', 'done' or 'failed'"),
        ({"generation": "1"}, "generation: Input should be a valid integer"),
        ({"tasks": {"worker:0": 3}}, "tasks.worker:0: "),
        ({"tasks": {"worker:0": {"state": 1}}}, "tasks.worker:0.state: "),
        ({"events": [{"time": 0.5}]}, "events.0.text: Field required"),
        ({"tasks": None}, "tasks: "),
    ],
)
def test_what_cannot_be_read_is_one_line(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 (the text is compared below)
        read(json.dumps({**SENT, **changes}))
    assert str(caught.value).startswith(message)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("body", ["", "{", "[]", "3", b"\xff", "[" * 100_000, '{"a": ' * 3000, "{}"])
def test_what_is_no_status_is_an_error_of_one_line(body: str | bytes) -> None:
    with pytest.raises(ValueError, match="Field required"):
        read(body)
