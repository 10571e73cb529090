"""Documents that are sent and written match their schemas."""

import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.model_dir import layout
from trainer.model_dir import result as results
from trainer.model_dir.files import read_json
from trainer.model_dir.result import Computed, JobEvent, Result, Training
from trainer.protocol import schema
from trainer.protocol.child import ChildStatus
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.task.agent import Agent
from trainer.supervisor.task.task_report import make_report, task_status

TRAINED = Training(90, {"accuracy": 0.75, "top 5": 1}, None, 4.5, {"import": 4.5}, 0.25, 3)
COMPUTED = Computed({"sum": 499_500, "slices": [1, 2]})


@pytest.mark.parametrize("figures", [TRAINED, COMPUTED], ids=["trained", "computed"])
def test_a_result_is_what_its_schema_says(tmp_path: Path, figures: Training | Computed) -> None:
    spec = build({"name": "j", "strategy": "one_device"}).model_dump(mode="json")
    lines, events = {"worker:0": "task=worker:0"}, [JobEvent(1.7e9, "generation 1 formed: 1 tasks")]
    whole = Result("j", "one_device", figures, 3.5, 1, [], lines, events, {"keras": "3"}, {"train.seed": None}, spec)
    results.write(str(tmp_path), whole)
    written = read_json(layout.result(tmp_path))
    jsonschema.validate(written, schema.result())
    assert list(written)[:4] == ["version", "status", "job", "strategy"]
    assert "figures" not in written
    found = results.finished(str(tmp_path))
    assert found == results.Finished({"train.seed": None}, 90 if figures is TRAINED else 0)
    for name in ("version", "seconds", "compatibility_key"):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**written, name: "x"}, schema.result())


def test_figures_stand_beside_the_fields_of_a_result() -> None:
    whole = Result("j", "one_device", TRAINED, 3.5, 1, [], {}, [], {}, {}, {}).document()
    assert (whole["steps"], whole["test_accuracy"], whole["test_top 5"]) == (90, 0.75, 1)
    assert Result("j", "graph", COMPUTED, 3.5, 1, [], {}, [], {}, {}, {}).document()["result"] == COMPUTED.result


@pytest.mark.parametrize("code", [None, Exit.OK, Exit.DIVERGED])
def test_a_status_is_what_its_schema_says(tmp_path: Path, code: Exit | None) -> None:
    tasks = {"worker": 2, "ps": 1, "evaluator": 1}
    spec = build({"name": "j", "strategy": "parameter_server", "tasks": tasks, "model_dir": str(tmp_path)})
    agent = Agent(spec, tasks_of(spec)[0], Path(os.devnull))
    chief = Chief(agent)
    with contextlib.closing(chief._record.lock):
        child = ChildStatus(step=3, line="task=worker:1", figures={"loss": 0.5, "state": "theirs"})
        other = replace(make_report(agent), task="worker:1", incarnation="another", status=child)
        chief._rendezvous.report(other, chief._clock())
        if code is not None:
            chief._rendezvous.end(code, "why")
        for status in (chief.status(), task_status(agent)):
            sent = json.loads(json.dumps(status.document()))
            jsonschema.validate(sent, schema.status())
            assert sent["version"] == 2
        row = json.loads(json.dumps(chief.status().document()))["tasks"]["worker:1"]
        assert (row["step"], row["figures"]["loss"]) == (3, 0.5)
        assert row["state"] == ("done" if code is Exit.OK else "waiting")
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate({**task_status(agent).document(), "phase": "asleep"}, schema.status())
