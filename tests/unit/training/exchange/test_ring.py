"""The ring that adds up arrays, with all of its tasks in this process."""

from __future__ import annotations

import contextlib
import socket
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from trainer.training.exchange import ring
from trainer.training.exchange.collective_sums import PART
from trainer.training.exchange.ring import DIFFERENT, LOST, Ring

TYPES = {"float32": 1e-6, "float64": 1e-14, "float16": 2e-3, "bfloat16": 2e-2}
"""The relative error of a sum of a few positive numbers."""


@contextlib.contextmanager
def rings(count: int) -> Iterator[tuple[list[Ring], list[socket.socket]]]:
    """The tasks of a ring, and the connection of each one to the next."""
    pairs = [socket.socketpair() for _ in range(count)]
    try:
        yield (
            [Ring(i, count, pairs[i][0], pairs[i - 1][1]) for i in range(count)],
            [following for following, _ in pairs],
        )
    finally:
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
                end.close()


def each(tasks: list[Ring], of: Callable[[Ring, int], Any]) -> list[Any]:
    """What a function gives for each task, of all at the same time."""
    with ThreadPoolExecutor(len(tasks)) as pool:
        return [found.result(30) for found in [pool.submit(of, task, i) for i, task in enumerate(tasks)]]


def numbers(seed: int, size: int, dtype: Any = "float32") -> Any:
    return (
        np.random.default_rng(seed).uniform(0.5, 1.5, size).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    )


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("size", [0, 1, 7, 100_003, PART // 4 * 2 + 5])
@pytest.mark.parametrize("count", [2, 3, 5])
def test_all_tasks_have_the_same_sum(count: int, size: int, dtype: str) -> None:
    given = [numbers(seed, size, dtype) for seed in range(count)]
    kept = [array.copy() for array in given]
    with rings(count) as (tasks, _):
        sums = each(tasks, lambda task, i: task.end(task.begin(3, given[i])))
    expected = np.sum([array.astype("float64") for array in kept], 0)
    assert {(total.dtype, total.tobytes()) for total in sums} == {(given[0].dtype, sums[0].tobytes())}
    np.testing.assert_allclose(sums[0].astype("float64"), expected, rtol=TYPES[dtype])
    for array, before in zip(given, kept, strict=True):
        np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize("count", [2, 4])
def test_tasks_may_begin_arrays_in_another_order_and_again_and_again(count: int) -> None:
    keys = [7, 1, 9, 4]
    labels = [(i, key, use) for i in range(count) for key in keys for use in range(5)]
    own = {label: numbers(number, 1000 + label[1]) for number, label in enumerate(labels)}

    def work(task: Ring, i: int) -> list[Any]:
        found = []
        for use in range(5):
            order = list(np.random.default_rng(i + use).permutation(keys))
            tickets = {int(key): task.begin(int(key), own[i, int(key), use]) for key in order}
            found += [task.end(tickets[key]) for key in sorted(keys)]
        return found

    with rings(count) as (tasks, _):
        found = each(tasks, work)
    expected = [
        sum(own[i, key, use].astype("float64") for i in range(count)) for use in range(5) for key in sorted(keys)
    ]
    for sums in found:
        for total, right in zip(sums, expected, strict=True):
            np.testing.assert_allclose(total, right, rtol=1e-6)


def test_no_sum_is_ready_before_all_of_its_messages_have_passed() -> None:
    """Rounds of a part may change places: a task that begins late is asked to forward before it has sent its own."""
    with rings(3) as (tasks, _):

        def work(task: Ring, i: int) -> set[bool]:
            random = np.random.default_rng(i)
            found = set()
            for use in range(400):
                if random.random() < 0.5:
                    time.sleep(random.uniform(0, 2e-4))
                total = task.end(task.begin(0, np.full(40_000, use + i, "float32")))
                found.add(bool((total == 3 * use + 3).all()))
                total[:] = -1  # as TensorFlow may use its memory
            return found

        assert each(tasks, work) == [{True}] * 3


def test_sums_are_aligned_as_tensorflow_needs_it() -> None:
    with rings(2) as (tasks, _):
        for total in each(tasks, lambda task, _: task.end(task.begin(0, numbers(1, 12_345)))):
            assert total.ctypes.data % 64 == 0


def test_a_lost_peer_is_an_error_of_whoever_waits() -> None:
    with rings(3) as (tasks, connections):
        first = tasks[0].begin(0, numbers(0, 1000))
        connections[2].shutdown(socket.SHUT_RDWR)
        with pytest.raises(ConnectionError, match=f"^{LOST}: .* closed"):
            tasks[0].end(first)
        with pytest.raises(ConnectionError, match=f"^{LOST}: .* closed"):
            tasks[0].end(tasks[0].begin(1, numbers(1, 10)))


def test_arrays_of_different_sizes_are_an_error() -> None:
    with rings(2) as (tasks, _):

        def work(task: Ring, i: int) -> None:
            with pytest.raises(ValueError, match=f"^{DIFFERENT}: |^{LOST}"):
                task.end(task.begin(0, numbers(i, 1000 + 8 * i)))

        each(tasks, work)


def test_a_sum_that_was_complete_is_there_although_a_peer_has_left_since() -> None:
    with rings(2) as (tasks, connections):
        tickets = [task.begin(0, np.full(1000, i + 1, "float32")) for i, task in enumerate(tasks)]
        np.testing.assert_array_equal(tasks[0].end(tickets[0]), np.full(1000, 3, "float32"))
        second = tasks[1]
        assert second._parts[0, 1, 0].done.wait(20)
        connections[0].shutdown(socket.SHUT_RDWR)
        with pytest.raises(ConnectionError, match=f"^{LOST}"):
            second.end(second.begin(1, numbers(0, 10)))
        np.testing.assert_array_equal(second.end(tickets[1]), np.full(1000, 3, "float32"))


def test_infinite_sums_are_sums_where_warnings_are_errors(recwarn: pytest.WarningsRecorder) -> None:
    warnings.simplefilter("error")
    with rings(2) as (tasks, _):
        given = [np.array([np.inf, 1], "float16"), np.array([-np.inf, 2], "float16")]
        for total in each(tasks, lambda task, i: task.end(task.begin(0, given[i]))):
            np.testing.assert_array_equal(total, np.array([np.nan, 3], "float16"))


def test_a_thread_that_fails_is_an_error_of_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError("no 4 bytes left")

    monkeypatch.setattr(ring, "_add", no_memory)
    with rings(2) as (tasks, _):

        def work(task: Ring, i: int) -> None:
            with pytest.raises(RuntimeError, match=r"^gradients cannot be added up: MemoryError: no 4 bytes left$"):
                task.end(task.begin(0, numbers(i, 1000)))

        each(tasks, work)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_memory_of_large_sums_is_used_again_once_they_are_dropped(dtype: str) -> None:
    size = PART // np.dtype(dtype).itemsize + 3
    with rings(2) as (tasks, _):

        def sums(seed: int) -> list[Any]:
            return each(tasks, lambda task, i: task.end(task.begin(0, numbers(seed + i, size, dtype))))

        def where(found: list[Any]) -> list[int]:
            return [total.ctypes.data for total in found]

        first = sums(1)
        kept, places = [total.copy() for total in first], where(first)
        second = sums(3)
        assert not set(places) & set(where(second))  # the first ones are still there
        for total, before in zip(first, kept, strict=True):
            np.testing.assert_array_equal(total, before)
        del first, total
        third = sums(5)
        assert where(third) == places
        expected = numbers(5, size, dtype).astype("float64") + numbers(6, size, dtype)
        for total in third:
            np.testing.assert_allclose(total.astype("float64"), expected, rtol=TYPES[dtype])


@pytest.mark.parametrize(("before", "with_a_ring"), [(0.005, ring._SWITCH_SECONDS), (0.00001, 0.00001)])
def test_busy_threads_of_python_give_up_the_gil_soon(before: float, with_a_ring: float) -> None:
    default = sys.getswitchinterval()
    try:
        sys.setswitchinterval(before)
        with rings(2):
            assert sys.getswitchinterval() == pytest.approx(with_a_ring)
    finally:
        sys.setswitchinterval(default)
