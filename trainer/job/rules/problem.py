"""A broken rule of a job spec."""

from __future__ import annotations

from typing import NamedTuple


class Problem(NamedTuple):
    """A path in the spec, the value there, and the rule with the fix."""

    path: str
    value: object
    rule: str
    needs: tuple[str, ...] = ()
    """Other settings that the rule depends on. The problem is not reported while one of them is invalid."""
