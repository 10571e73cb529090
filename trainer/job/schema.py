"""The JSON Schema of a spec; docs/spec.md is generated from it."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
from collections.abc import Mapping
from types import ModuleType
from typing import Any, TypeAlias

from pydantic import VERSION

from trainer.job import data, kubernetes, spec, tracking, train
from trainer.job.errors import UserError
from trainer.job.fields import SCHEMAS
from trainer.job.spec import JobSpec

Schema: TypeAlias = dict[str, Any]
"""A JSON Schema."""


def schema() -> str:
    """JSON Schema of the spec, for editors.

    Raises:
        UserError: this pydantic cannot write it.
    """
    if not SCHEMAS:
        raise UserError(f"pydantic: {VERSION} is installed, and `trainer schema` needs 2.10 or newer; upgrade it")
    document = JobSpec.model_json_schema()
    for home in (spec, data, kubernetes, tracking, train):
        describe({"JobSpec": document, **document["$defs"]}, home)
    return json.dumps(document, indent=2)


def describe(models: Mapping[str, Schema], home: ModuleType) -> None:
    """Adds to each field of the schemas its description: the string under the field in the class's module."""
    # Pydantic's use_attribute_docstrings would read the source at every start of every command, which takes 20 ms.
    classes = [each for each in ast.parse(inspect.getsource(home)).body if isinstance(each, ast.ClassDef)]
    for each in classes:
        heirs = [heir.name for heir in classes if each.name in map(ast.unparse, heir.bases)]
        for model in [models[name] for name in (each.name, *heirs) if name in models]:
            for field, text in itertools.pairwise(each.body):
                if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                    about = " ".join(ast.literal_eval(text.value).split())
                    model["properties"][ast.unparse(field.target)]["description"] = about
