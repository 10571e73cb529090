"""Values of a spec to change, as lines of `--set`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeAlias

from trainer.job.errors import UserError
from trainer.job.messages import show

Overrides: TypeAlias = "Mapping[str, object] | Iterable[str]"


def lines(overrides: Overrides) -> list[str]:
    """`path.to.key=value` each, the value in YAML; a text is one of them.

    Raises:
        UserError: YAML has no such value.
    """
    if isinstance(overrides, str):
        return [overrides]
    return [_line(*each) for each in overrides.items()] if isinstance(overrides, Mapping) else [*overrides]


def _line(key: str, value: object) -> str:
    import yaml

    plain = value.item() if hasattr(value, "item") else value  # a number of numpy
    try:
        text = yaml.safe_dump(plain, default_flow_style=True, width=float("inf"))
    except yaml.YAMLError:
        raise UserError(f"set: {key}: {show(value)}: must be a number, a text, a list or a mapping") from None
    return f"{key}={text.rstrip().removesuffix('...').rstrip()}"
