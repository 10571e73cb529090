"""An event loop whose time passes at once when nothing is left to do, and which knows whose code it runs.

Every callback of asyncio carries the context in which it was made, so a context variable says which supervisor runs.
Of one that was killed nothing runs any more, not even a `finally`; what one that is frozen has to do waits.
"""

from __future__ import annotations

import asyncio
import collections
import contextlib
import contextvars
import heapq
from collections.abc import Callable
from typing import Any, Protocol


class Host(Protocol):
    """Of a callback, as far as the loop is concerned."""

    dead: bool
    backlog: collections.deque[asyncio.Handle] | None
    """What waits while it is frozen; None while it is not."""


running: contextvars.ContextVar[Host | None] = contextvars.ContextVar("running", default=None)
"""Whose code runs; None for the world's own."""


class Loop(asyncio.BaseEventLoop):
    now = 0.0
    slowest_call = 0.0
    """How long a call in a thread takes, which in trainer is one to a disk."""

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        timers, ready = self._scheduled, self._ready  # type: ignore[attr-defined]
        if not ready:
            while timers and timers[0]._cancelled:
                heapq.heappop(timers)
            if not timers:
                raise RuntimeError("nothing will ever happen again")
            self.now = max(self.now, timers[0]._when)
        while timers and timers[0]._when <= self.now:
            timer = heapq.heappop(timers)
            timer._scheduled = False
            ready.append(timer)
        handle = ready.popleft()
        if handle._cancelled:
            return
        host = handle._context.get(running)
        if host is not None and host.dead:
            return
        if host is not None and host.backlog is not None:
            host.backlog.append(handle)
            return
        handle._run()

    def thaw(self, host: Host) -> None:
        """Runs what has waited, in its order."""
        backlog, host.backlog = host.backlog, None
        self._ready.extend(backlog or ())  # type: ignore[attr-defined]

    def run_in_executor(self, executor: object, func: Callable[..., Any], *args: Any) -> Any:  # type: ignore[override]
        """Runs it here: a thread's turn would be chance."""
        future = self.create_future()

        def run() -> None:
            if future.cancelled():
                return
            try:
                future.set_result(func(*args))
            except Exception as error:
                future.set_exception(error)

        self.call_later(self.slowest_call, run)
        return future

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Any = None) -> asyncio.Handle:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)

    def _process_events(self, event_list: object) -> None:
        raise NotImplementedError

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """What a callback raises ends the history; what nobody has asked a future for is of no interest."""
        if context.get("future") is None and (error := context.get("exception")) is not None:
            self.errors.append(error)

    def create_task(self, *args: Any, **kwargs: Any) -> asyncio.Task[Any]:
        task = super().create_task(*args, **kwargs)
        self.tasks.append(task)
        return task

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[asyncio.Task[Any]] = []
        self.errors: list[BaseException] = []
        """Exceptions that nobody has caught."""

    def forget(self) -> None:
        """The history is over: what still waits must not run on when it is collected."""
        for task in self.tasks:
            if task.done():
                if not task.cancelled() and task._log_traceback and (error := task.exception()) is not None:
                    self.errors.append(error)
                continue
            work: Any = task.get_coro()
            for _ in range(5):  # each `finally` that waits is left by one more
                with contextlib.suppress(RuntimeError, AssertionError):
                    work.close()
                    break

    def __del__(self) -> None:
        """It has nothing to close."""
