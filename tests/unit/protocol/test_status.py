"""The chief's /status as other programs of trainer read it."""

import json
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
        replace(STATUS, phase="failed", tasks={}, end=End(13, "the loss is nan")),
    ],
)
def test_what_is_sent_is_what_is_read(status: JobStatus) -> None:
    assert read(json.dumps(status.document())) == status


def test_a_field_of_a_later_version_is_a_figure_and_harms_nothing() -> None:
    rows = {"worker:0": {**SENT["tasks"]["worker:0"], "node": "n1"}}
    assert read(json.dumps({**SENT, "colour": [1], "tasks": rows})) == replace(
        STATUS,
        figures={**STATUS.figures, "colour": [1]},
        tasks={"worker:0": TaskRow(state="running", restarts=1, figures={"step": 4, "node": "n1"})},
    )


def test_images_of_0_1_are_read() -> None:
    """They sent no version, and no `standby` of an absent task."""
    old = {name: value for name, value in SENT.items() if name != "version"}
    old["tasks"] = {"worker:0": {"state": "absent", "generation": 0, "restarts": 0}}
    assert read(json.dumps(old)) == replace(STATUS, tasks={"worker:0": TaskRow(state="absent", figures={})})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"version": 2, "phase": "resting"},
            "version: 2: this trainer reads versions up to 1",
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
