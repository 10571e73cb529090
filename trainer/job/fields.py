"""Types of single values in a spec, and the base of its models."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from typing import Annotated

from pydantic import VERSION, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue

SCHEMAS = [int(part) for part in VERSION.split(".")[:2]] >= [2, 10]
"""Whether this pydantic can write the JSON Schema of a field with a shorter notation."""
# Before 2.9 pydantic warns of a field that has the name of a deprecated method of its own: `data.NAME.copy`.
warnings.filterwarnings("ignore", 'Field name "copy" shadows', UserWarning)


def _number_from_text(value: object) -> object:
    # YAML 1.1 reads 1e-4, which lacks a point, as text (https://yaml.org/type/float.html).
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


# 2**31: above any real job, and within the range of timers and of 32-bit integers.
Positive = Annotated[float, Field(gt=0, lt=2**31, allow_inf_nan=False), BeforeValidator(_number_from_text)]
Count = Annotated[int, Field(ge=1, lt=2**31)]
# TF_CONFIG lists every address and is one environment variable (rules.LONGEST_VARIABLE): more never fit.
Replicas = Annotated[int, Field(ge=1, le=8192)]
# Rust's regex sees only valid Unicode, so this also refuses half a surrogate pair, which no file name can hold.
Text = Annotated[str, Field(pattern=r"^[^\x00-\x1f\x7f]+$")]
Word = Annotated[str, Field(pattern=r"^[^\x00]*$")]
"""Text that a process can get as an argument or in an environment variable."""


def _cores(value: object) -> object:
    """Kubernetes writes 0.3 cores as 300m too."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]+(\.[0-9]+)?m", value):
        return float(value[:-1]) / 1000
    return _number_from_text(value)


_HALF = re.compile("[\ud800-\udfff]")


def _plain(value: object) -> object:
    """Refuses what YAML has and JSON has not, with its place in the value."""
    try:
        return _require_plain(value)
    except RecursionError:
        raise ValueError("refers to itself, or is nested too deeply") from None


def _require_plain(value: object, place: str = "") -> object:
    if isinstance(value, dict):
        for key, each in value.items():
            if not isinstance(key, str):
                raise ValueError(f"the name {key!r}{place and f' in {place}'} must be text: write it in quotes")
            shown = key if key.isprintable() else repr(key)
            below = f"{place}.{shown}" if place else shown
            _require_plain(key, below)
            _require_plain(each, below)
    elif isinstance(value, list):
        for index, each in enumerate(value):
            _require_plain(each, f"{place}[{index}]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("JSON has no such number")
    elif isinstance(value, str):
        if _HALF.search(value):
            raise ValueError(f"{place} has half a surrogate pair, which is no character; remove it".lstrip())
    elif not isinstance(value, (int, float)) and value is not None:
        kind = {"bytes": "binary data", "datetime": "a time"}.get(type(value).__name__, f"a {type(value).__name__}")
        raise ValueError(f"{place} is {kind}, which JSON has not; write it in quotes".lstrip())
    return value


Value = Annotated[JsonValue, BeforeValidator(_plain)]
"""Plain data that survives a round trip through JSON."""
Document = Annotated[dict[str, object], BeforeValidator(_plain)]
"""Plain data that are a part of another program's document, such as a pod's, which defines their shape."""


def short(convert: Callable[[object], object], notation: object) -> BeforeValidator:
    """Converts a shorter notation of a field; `notation` is the type of all that is allowed, for `trainer schema`."""
    return BeforeValidator(convert, json_schema_input_type=notation) if SCHEMAS else BeforeValidator(convert)


Quantity = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|Pi|Ei|k|M|G|T|P|E)?$")]
Cores = Annotated[
    float,
    Field(gt=0, lt=2**31, allow_inf_nan=False),
    short(_cores, Annotated[float, Field(gt=0)] | Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?m?$")]),
]


class Strict(BaseModel):
    # The text under a field is its description in `trainer schema`; see `schema.py`. Before 2.10 pydantic reserves
    # names that begin with model_.
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, defer_build=True, protected_namespaces=())
