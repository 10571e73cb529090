"""Runs coroutines for callers that are none, each call with its own loop in its own thread: in Jupyter the caller's
thread has an event loop that runs already."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Generator
from typing import TypeVar

T = TypeVar("T")


class Loop:
    """An event loop in its own thread. Tasks that still run on it are cancelled at the end."""

    def __enter__(self) -> Loop:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    def run(self, coroutine: Coroutine[object, None, T]) -> T:
        """What the coroutine returns. Ctrl-C, which reaches the main thread alone, cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        finally:
            future.cancel()

    def __exit__(self, *_: object) -> None:
        self.run(_cancel_all())
        self.run(self._loop.shutdown_asyncgens())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def run(coroutine: Coroutine[object, None, T]) -> T:
    """What a coroutine returns, as asyncio.run does, also within a running event loop."""
    with Loop() as loop:
        return loop.run(coroutine)


def each(values: AsyncIterator[T]) -> Generator[T]:
    """The values of an asynchronous iterator, which is closed after the last, or when the caller stops early."""

    async def following() -> tuple[T, ...]:
        try:
            return (await anext(values),)
        except StopAsyncIteration:
            return ()

    with Loop() as loop:
        while next_values := loop.run(following()):
            yield from next_values


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
