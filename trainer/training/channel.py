"""Child and supervisor talk in JSON lines: events go up on a pipe of their own, orders come down on stdin.

Orders: {"go": {...}}, {"stop": true}, {"final": step, "score": bool}, {"silent": [task, ...]}.
End of file means that the supervisor is gone.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
from typing import Any

from trainer.job.errors import UserError

EVENTS_VARIABLE = "TRAINER_EVENTS_FD"
SIGN_OF_LIFE_SECONDS = 1.0
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
_CARRIES = {"done": "result", "line": "line of output"}


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


class Channel:
    """The child's end. `stopping` is set by an order to stop, `silent` by one that names the tasks that do not
    report any more; other orders are queued."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.silent: frozenset[str] = frozenset()
        self.orders: queue.Queue[dict[str, Any]] = queue.Queue()
        self._lock = threading.Lock()
        self._events = os.fdopen(int(os.environ.pop(EVENTS_VARIABLE)), "w", buffering=1)
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._live, daemon=True).start()

    def tell(self, event: str, **fields: Any) -> None:
        """Sends one event. A supervisor that is gone is noticed by `_listen`.

        Raises:
            UserError: it is longer than EVENT_BYTES.
        """
        line = json.dumps({"event": event, **fields}) + "\n"
        if len(line) > EVENT_BYTES:
            mebibytes = f"{len(line) / 2**20:.0f} MiB of JSON, at most {EVENT_BYTES >> 20} MiB"
            raise UserError(f"workload: its {_CARRIES.get(event, event)} is {mebibytes}; write it to a file instead")
        with self._lock:
            try:
                self._events.write(line)
            except (BrokenPipeError, ValueError):
                return

    def _listen(self) -> None:
        for line in sys.stdin:
            try:
                order = json.loads(line)
            except (ValueError, RecursionError):
                order = None
            if not isinstance(order, dict):
                print(f"no order: {line[:100]!r}", file=sys.stderr)
            elif "stop" in order:
                self.stopping.set()
            elif "silent" in order:
                self.silent = frozenset(order["silent"])
            else:
                self.orders.put(order)
        # Nobody is left to report to; and the port must be free for the supervisor's next child.
        os._exit(1)

    def _live(self) -> None:
        alive = threading.Event()
        while not alive.wait(SIGN_OF_LIFE_SECONDS):
            self.tell("alive")
