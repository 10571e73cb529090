"""The synchronous interface of the asynchronous Kubernetes target."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import AsyncIterator

import pytest

from trainer.targets.kubernetes.loop import each, run

ENDED: list[str] = []


async def beat(queue: asyncio.Queue[int]) -> None:
    try:
        for number in range(100):
            await queue.put(number)
        await asyncio.Event().wait()
    finally:
        ENDED.append("beat")


async def count(last: int, error: BaseException | None = None) -> AsyncIterator[int]:
    """The numbers below `last`, which another task makes; then an error of its own, or Ctrl-C while it waits."""
    queue: asyncio.Queue[int] = asyncio.Queue(2)
    beating = asyncio.create_task(beat(queue))
    try:
        while (number := await queue.get()) < last:
            yield number
        if isinstance(error, KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        if error:
            raise error
    finally:
        beating.cancel()
        ENDED.append("count")


@pytest.fixture(autouse=True)
def ended() -> None:
    ENDED.clear()


def test_values_come_in_their_order() -> None:
    assert list(each(count(7))) == list(range(7))
    assert sorted(ENDED) == ["beat", "count"]


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt()], ids=["error", "Ctrl-C"])
def test_an_error_comes_out_after_all_has_ended(error: BaseException) -> None:
    values = each(count(2, error))
    assert [next(values), next(values)] == [0, 1]
    with pytest.raises(type(error)):
        next(values)
    assert sorted(ENDED) == ["beat", "count"]


def test_a_caller_that_wants_no_more_leaves_nothing_behind() -> None:
    values = each(count(7))
    assert next(values) == 0
    values.close()
    assert sorted(ENDED) == ["beat", "count"]


async def sums(last: int) -> int:
    return sum([number async for number in count(last)])


def test_within_a_running_event_loop_coroutines_run_too() -> None:
    """As in the cell of a notebook."""

    async def cell() -> tuple[int, list[int]]:
        return run(sums(4)), list(each(count(3)))

    threads = threading.active_count()
    assert asyncio.run(cell()) == (6, [0, 1, 2])
    assert threading.active_count() == threads


def test_ctrl_c_cancels_a_coroutine() -> None:
    async def waits() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            ENDED.append("waits")

    with pytest.raises(KeyboardInterrupt):
        run(waits())
    assert ENDED == ["waits"]
