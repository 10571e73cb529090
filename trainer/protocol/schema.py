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
    schema = _schema(JobStatus | TaskStatus, status_module, result_module)
    of_child = _schema(ChildStatus, child_module)["properties"]
    for name in ("JobStatus", "TaskStatus", "TaskRow"):
        for field, described in of_child.items():
            schema["$defs"][name]["properties"][field].setdefault("description", described["description"])
    return _titled(schema, "/status")


def result() -> Schema:
    """The schema of result.json."""
    schema = _schema(Result, result_module)
    _beside(schema, "figures")
    for model in (Ran, Training, Computed):
        figures = schema["$defs"].pop(model.__name__)
        schema["properties"] |= figures["properties"]
    test = schema["properties"].pop("test")
    schema["patternProperties"] = {"^test_": {**test["additionalProperties"], "description": test["description"]}}
    return _titled(schema, "result.json")


def _schema(of: Any, *homes: ModuleType) -> Schema:
    schema: Schema = TypeAdapter[Any](of).json_schema(mode="serialization")
    named = {schema["title"]: schema} if "title" in schema else {}
    for home in homes:
        describe({**named, **schema.get("$defs", {})}, home)
    return schema


def _beside(model: Schema, name: str) -> None:
    """A field whose values are written beside the other fields."""
    del model["properties"][name]
    model["required"] = [each for each in model["required"] if each != name]


def _titled(whole: Schema, title: str) -> Schema:
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **whole, "title": title}
