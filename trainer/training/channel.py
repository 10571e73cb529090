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

from trainer.job import environment
from trainer.job.errors import UserError
from trainer.protocol.events import EVENT_BYTES

SIGN_OF_LIFE_SECONDS = 1.0
_CARRIES = {"done": "result", "line": "line of output"}

Order = dict[str, Any]


class Channel:
    """The child's end. `stopping` is set by an order to stop, `silent` by one that names the tasks that do not
    report any more; other orders are queued."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.silent: frozenset[str] = frozenset()
        self.orders: queue.Queue[Order] = queue.Queue()
        self._lock = threading.Lock()
        self._events = os.fdopen(int(os.environ.pop(environment.EVENTS)), "w", buffering=1)
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._live, daemon=True).start()

    def tell(self, event: str, **fields: object) -> None:
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
        # There is no supervisor to report to, and the port must be free for its next child.
        os._exit(1)

    def _live(self) -> None:
        alive = threading.Event()
        while not alive.wait(SIGN_OF_LIFE_SECONDS):
            self.tell("alive")
