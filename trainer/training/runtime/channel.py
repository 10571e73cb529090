"""JSON lines between child and supervisor: the child sends events on a separate pipe and reads orders from stdin.

End of file means that the supervisor has died.
"""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable

from trainer.job import environment
from trainer.job.errors import UserError
from trainer.protocol.events import EVENT_BYTES, Alive, Doing, Done, Event, Line, name_of, write_event
from trainer.protocol.orders import Final, Go, Silent, Stop, Where, read_order

SIGN_OF_LIFE_SECONDS = 1.0
"""Seconds between two signs of life."""
_CARRIES: dict[type[Event], str] = {Done: "result", Line: "line of output"}


class Channel:
    """The child's end. An order to stop sets `stopping`; an order with the tasks that no longer report sets `silent`;
    orders to go, and those with an evaluator's last checkpoint, are queued."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.silent: frozenset[str] = frozenset()
        self.go: queue.Queue[Go] = queue.Queue()
        self.final: queue.Queue[Final] = queue.Queue()
        self.doing: Callable[[], str] = lambda: ""
        """Returns what the loop does; the loop sets it. It may read TensorFlow's variables."""
        self._lock = threading.Lock()
        self._events = os.fdopen(int(os.environ.pop(environment.EVENTS)), "w", buffering=1)
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._live, daemon=True).start()

    def send(self, event: Event) -> None:
        """Sends one event. `_listen` detects a dead supervisor.

        Raises:
            UserError: the event is longer than EVENT_BYTES.
        """
        line = write_event(event)
        if len(line) > EVENT_BYTES:
            what = _CARRIES.get(type(event), name_of(event))
            mebibytes = f"{len(line) / 2**20:.0f} MiB of JSON, at most {EVENT_BYTES >> 20} MiB"
            raise UserError(f"workload: its {what} is {mebibytes}; write it to a file instead")
        with self._lock:
            try:
                self._events.write(line)
            except (BrokenPipeError, ValueError):
                return

    def _listen(self) -> None:
        for line in sys.stdin:
            match read_order(line):
                case None:
                    print(f"not an order: {line[:100]!r}", file=sys.stderr)
                case Stop():
                    self.stopping.set()
                case Silent(tasks):
                    self.silent = tasks
                case Where():
                    # In a thread of its own: where the process hangs, this may too.
                    threading.Thread(target=lambda: self.send(Doing(self.doing())), daemon=True).start()
                case Go() as order:
                    self.go.put(order)
                case Final() as order:
                    self.final.put(order)
        # There is no supervisor to report to, and the port must be free for its next child.
        os._exit(1)

    def _live(self) -> None:
        alive = threading.Event()
        while not alive.wait(SIGN_OF_LIFE_SECONDS):
            self.send(Alive())
