"""The ring that adds up arrays, with all of its tasks in this process."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from trainer.training import ring
from trainer.training.parts import PART
from trainer.training.ring import LOST, Ring

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
            with pytest.raises(ConnectionError, match=LOST):
                task.end(task.begin(0, numbers(i, 1000 + 8 * i)))

        each(tasks, work)


def test_only_who_knows_the_token_is_connected() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address, deadline = listener.getsockname(), time.monotonic() + 20
        silent = socket.create_connection(address)
        stranger = socket.create_connection(address)
        stranger.sendall(b"f" * 16)
        found: list[socket.socket] = []
        token = "0123456789abcdef"
        accepting = threading.Thread(target=lambda: found.append(ring._accepted(listener, token, deadline, "")))
        accepting.start()
        silent.shutdown(socket.SHUT_WR)
        own = ring._dialled(address, token, deadline, "")
        accepting.join(20)
        own.sendall(b"hello")
        assert found[0].recv(5) == b"hello"
        assert stranger.recv(1) == b""
        for each_ in (silent, stranger, own, *found):
            each_.close()


def test_a_peer_that_does_not_connect_is_named_with_its_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        late = time.monotonic() - 1
        text = f"worker:0 did not connect to port {port} of worker:1"
        rule = r" \(timed out\), to add up gradients; allow it, or set communication.implementation=ring$"
        with pytest.raises(tf.errors.UnknownError, match=f"^{text}{rule}"):
            ring._accepted(listener, "0123456789abcdef", late, text)
    with pytest.raises(tf.errors.UnknownError, match=f"^worker:0 cannot connect to worker:1 at 127.0.0.1:{port} "):
        ring._dialled(("127.0.0.1", port), "", late, "worker:0 cannot connect to worker:1")
