"""Where two JSON documents differ, such as the specs of two jobs of one name."""

from __future__ import annotations

import json
from collections.abc import Iterator


def differences(old: object, new: object) -> list[str]:
    """A line for each value that differs: `train.steps: 300 there, 301 here`."""
    return [f"{path}: {there} there, {here} here" for path, there, here in _differing(old, new, "")]


def _differing(old: object, new: object, path: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            yield from _differing(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif old != new:
        there, here = ("unset" if each is None else json.dumps(each) for each in (old, new))
        yield path, there, here
