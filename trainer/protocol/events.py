"""Events: what a child tells its supervisor, as JSON lines on a pipe of their own."""

from __future__ import annotations

import json
from typing import Any

EVENT_BYTES = 1 << 26
"""An event is one line, which the supervisor takes as a whole."""

_FIELDS: dict[str, dict[str, Any]] = {
    "line": {"text": str},
    "start": {"step": int, "steps": int, "line": str},
    "step": {"step": int, "workers": dict},
    "stopped": {"step": int},
    "scored": {"step": int},
    "peer_lost": {"text": str, "code": int, "message": str},
    "error": {"code": int, "message": str},
    "checkpoint": {"step": int, "stalled": float},
    "done": {"step": int, "test": dict, "result": dict},
}
"""What a supervisor looks at in an event, by its kind."""
_REQUIRED = {"line": {"text"}, "peer_lost": {"text"}, "error": {"code", "message"}, "checkpoint": {"step", "stalled"}}


def read_event(line: bytes) -> dict[str, Any] | None:
    """The event in a line; None if it is none: the user's own code may write to the pipe as well."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(event, dict) or not isinstance(kind := event.get("event"), str) or kind == "exit":
        return None  # exit is not told but seen
    fields = _FIELDS.get(kind, {})
    typed = all(_is(event[name], wanted) for name, wanted in fields.items() if name in event)
    rows = event.get("workers", {}) if kind == "step" else {}
    typed = typed and all(isinstance(row, dict) for row in rows.values())
    return event if typed and event.keys() >= _REQUIRED.get(kind, set()) else None


def _is(value: object, wanted: Any) -> bool:
    if wanted in (int, float):
        numbers = int if wanted is int else (int, float)
        return isinstance(value, numbers) and not isinstance(value, bool) and 0 <= value < 2**63
    return isinstance(value, wanted)
