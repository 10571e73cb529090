"""The JSON Schema of a spec."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
from pathlib import Path

from trainer.job.kubernetes import Kubernetes
from trainer.job.spec import JobSpec


def schema() -> str:
    """JSON Schema of the spec, for editors."""
    whole = JobSpec.model_json_schema()
    models = {"JobSpec": whole, **whole["$defs"]}
    # The text under a field describes it. Pydantic's use_attribute_docstrings would read the source for that
    # at every start of every command, which costs 20 ms.
    for part in (JobSpec, Kubernetes):
        for model in ast.parse(Path(inspect.getfile(part)).read_text(encoding="utf-8")).body:
            if isinstance(model, ast.ClassDef) and model.name in models:
                for field, text in itertools.pairwise(model.body):
                    if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                        about = models[model.name]["properties"][ast.unparse(field.target)]
                        about["description"] = ast.literal_eval(text.value)
    return json.dumps(whole, indent=2)
