"""JSON Schemas of the formats that other programs read: /status and result.json."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from pydantic import TypeAdapter

from trainer.job.schema import Schema, describe
from trainer.model_dir import result as result_module
from trainer.model_dir.result import Computed, Ran, Result, Training
from trainer.protocol import child as child_module
from trainer.protocol import status as status_module
from trainer.protocol.child import ChildStatus
from trainer.protocol.status import JobStatus, TaskStatus


def status() -> Schema:
    """The schema of /status: the chief's answer is a JobStatus, another task's a TaskStatus."""
    whole = _schema(JobStatus | TaskStatus, status_module, result_module)
    of_child = _schema(ChildStatus, child_module)["properties"]
    for name in ("JobStatus", "TaskStatus", "TaskRow"):
        for field, described in of_child.items():
            whole["$defs"][name]["properties"][field].setdefault("description", described["description"])
    return _titled(whole, "/status")


def result() -> Schema:
    """The schema of result.json."""
    whole = _schema(Result, result_module)
    _beside(whole, "figures")
    for model in (Ran, Training, Computed):
        figures = whole["$defs"].pop(model.__name__)
        whole["properties"] |= figures["properties"]
    test = whole["properties"].pop("test")
    whole["patternProperties"] = {"^test_": {**test["additionalProperties"], "description": test["description"]}}
    return _titled(whole, "result.json")


def _schema(of: Any, *homes: ModuleType) -> Schema:
    whole: Schema = TypeAdapter[Any](of).json_schema(mode="serialization")
    named = {whole["title"]: whole} if "title" in whole else {}
    for home in homes:
        describe({**named, **whole.get("$defs", {})}, home)
    return whole


def _beside(model: Schema, name: str) -> None:
    """A field whose values are written beside the other fields."""
    del model["properties"][name]
    model["required"] = [each for each in model["required"] if each != name]


def _titled(whole: Schema, title: str) -> Schema:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "title": title}
