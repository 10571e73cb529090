"""The part of docs/spec.md that is generated from the JSON Schema of the spec."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trainer.job.kubernetes import LABEL_KEY
from trainer.job.schema import schema

PAGE = Path(__file__).parents[2] / "docs" / "spec.md"
BEGIN = "<!-- `make golden` writes from here -->\n"
PATTERNS = {
    r"^[^\x00-\x1f\x7f]+$": "string",
    r"^[^\x00]*$": "text",
    r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$": "quantity, as `2Gi`",
    r"^[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?$": "DNS name",
    r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$": "DNS label",
    r"^([A-Za-z0-9]([-._A-Za-z0-9]{0,61}[A-Za-z0-9])?)?$": "label value",
    LABEL_KEY: "label key",
    r"^[a-z]([-a-z0-9]{0,30}[a-z0-9])?$": "name",
    r"^/[^\x00-\x1f\x7f]*$": "absolute path",
}
"""Words for those that are too long to read in a table."""
LIMIT = 2**31
"""Above any real value: not worth a word."""
SECTIONS = {
    "": "JobSpec",
    "tasks": "Tasks",
    "tasks.TYPE": "TaskGroup",
    "data.NAME": "Data",
    "data.NAME.kubernetes": "DataVolume",
    "init_from": "InitFrom",
    "keep_best": "KeepBest",
    "train": "Train",
    "communication": "Communication",
    "communication.outer": "Outer",
    "deadlines": "Deadlines",
    "tracking": "Tracking",
    "notify": "Notify",
    "tpu": "Tpu",
    "secrets.VARIABLE": "Outside",
    "kubernetes": "Kubernetes",
    "tasks.TYPE.kubernetes": "Pod",
    "kubernetes.env.VARIABLE": "Source",
    "kubernetes.metrics": "Metrics",
    "kubernetes.volume": "Volume",
}
"""Of the page: the path in a spec, and the model that describes it."""


def page() -> str:
    """The whole page: what is written by hand, and the tables."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[0] + BEGIN + "\n".join(_tables()) + "\n"


def _tables() -> Iterator[str]:
    whole = json.loads(schema())
    models = {"JobSpec": whole, **whole["$defs"]}
    assert {*SECTIONS.values(), "JsonValue"} == {*models}, "a model that the page does not have"
    for path, name in SECTIONS.items():
        model = models[name]
        title = f"`{path}`" if path else "The top level"
        yield from ("", f"## {title}", "", _sentence(model["description"]), "")
        yield from ("| key | type | default | |", "|---|---|---|---|")
        for key, field in model["properties"].items():
            about = field.get("description") or (models[_model(field)]["description"] if _model(field) else "")
            assert about, f"{path}.{key} has no description"
            required = key in model.get("required", ())
            default = "required" if required else _default(field)
            yield f"| `{key}` | {_cell(_type(field))} | {default} | {_cell(_sentence(about))} |"


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."


def _cell(text: str) -> str:
    """A text in one line, with what ends a cell as an entity; in code the site would show a backslash before it."""
    text = " ".join(text.split()).replace("<", "&lt;").replace("|", "&#124;")
    return re.sub(r"`([^`]*&#124;[^`]*)`", r"<code>\1</code>", text)


def _model(field: dict[str, Any]) -> str:
    return str(field.get("$ref", "")).rpartition("/")[2]


def _default(field: dict[str, Any]) -> str:
    value = field.get("default")
    return "" if value in (None, [], {}) or isinstance(value, dict) else f"`{json.dumps(value).strip(chr(34))}`"


def _type(field: dict[str, Any]) -> str:
    if model := _model(field):
        (path,) = (path for path, name in SECTIONS.items() if name == model) if model != "JsonValue" else ("",)
        return f"[{path}](#{path.replace('.', '').lower()})" if path else "any"
    if "anyOf" in field:
        return " or ".join(_type(option) for option in field["anyOf"] if option.get("type") != "null")
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    kind = field.get("type")
    if kind in ("integer", "number"):
        return f"{kind}{_range(field)}"
    if kind == "array":
        return f"list of {_type(field['items'])}"
    if kind == "object":
        values = next(iter(field.get("patternProperties", {}).values()), field.get("additionalProperties"))
        return f"map to {_type(values)}" if isinstance(values, dict) else "map"
    if kind == "boolean":
        return "boolean"
    if kind == "string":
        pattern = field.get("pattern")
        return PATTERNS.get(pattern, f"string `{pattern}`") if pattern else "string"
    return "any"


def _range(field: dict[str, Any]) -> str:
    least, above, most = field.get("minimum"), field.get("exclusiveMinimum"), field.get("maximum")
    most = None if most == LIMIT else most
    if least is not None:
        return f", {least} to {most:,}" if most is not None else f", {least} or more"
    return f" above {above:g}" if above is not None else ""
