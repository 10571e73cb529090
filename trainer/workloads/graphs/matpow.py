"""A^n + B^n on one device and on two, timed.

The chain of n - 1 products is the tutorial's; squaring needs about 2 log2(n), which shows what the algorithm is worth.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.workloads.cluster import Cluster, short
from trainer.workloads.types import Settings, Tensor

SETTINGS: Settings = {"size": 1000, "n": 10, "repeats": 3, "devices": None}

Power = Callable[[Tensor, int], Tensor]


def compute(cluster: Cluster) -> dict[str, object]:
    """Times are the best of `repeats`, after one run that traces the graphs."""
    size, n = SETTINGS["size"], SETTINGS["n"]
    if size < 1 or n < 1:
        raise UserError(f"settings: size {size} and n {n}: must be at least 1")
    devices = _devices(cluster)
    # Divided by the size, the entries of a power neither vanish nor overflow.
    random = np.random.default_rng(0)
    matrices = [(random.random((size, size)) * (2 / size)).astype(np.float32) for _ in range(2)]
    seconds: dict[str, float] = {}
    sums = []
    done = 0
    for name, power in {"chain": chain, "squaring": squaring}.items():
        for where in ([devices[0]] * 2, devices):
            graph, placed = _placed(power, n, where, matrices)
            times = []
            for _ in range(1 + SETTINGS["repeats"]):
                begun = time.perf_counter()
                total = graph(*placed).numpy()
                times.append(time.perf_counter() - begun)
                cluster.progress(done := done + 1)
            seconds[f"{name} on {len(set(where))}"] = min(times[1:])
            sums.append(total)
            cluster.say(f"{name} on {' and '.join(dict.fromkeys(where))}: {min(times[1:]):.3f} s")
    speed_up = {name: seconds[f"{name} on 1"] / seconds[f"{name} on 2"] for name in ("chain", "squaring")}
    cluster.say(
        f"two devices: {speed_up['chain']:.2f} times as fast by the chain, {speed_up['squaring']:.2f} by squaring; "
        f"squaring: {seconds['chain on 1'] / seconds['squaring on 1']:.2f} times as fast as the chain"
    )
    error = max(float(np.abs(each - sums[0]).max() / np.abs(sums[0]).max()) for each in sums)
    expected = sum(np.linalg.matrix_power(matrix.astype(np.float64), n) for matrix in matrices)
    against_numpy = float(np.abs(sums[0] - expected).max() / np.abs(expected).max())
    return {"seconds": seconds, "speed_up": speed_up, "difference": error, "difference_from_numpy": against_numpy}


def chain(matrix: Tensor, n: int) -> Tensor:
    """n - 1 products, one after the other, as in the original."""
    power = matrix
    for _ in range(n - 1):
        power = tf.matmul(matrix, power)
    return power


def squaring(matrix: Tensor, n: int) -> Tensor:
    """The same power by exponentiation by squaring."""
    if n == 1:
        return matrix
    half = squaring(matrix, n // 2)
    square = tf.matmul(half, half)
    return tf.matmul(square, matrix) if n % 2 else square


def _devices(cluster: Cluster) -> list[str]:
    """Two of them: those of the setting, or the first CPU of the first and of the last task."""
    chosen = SETTINGS["devices"]
    if chosen is None:
        return [cluster.device(0), cluster.device(cluster.tasks - 1)]
    if not isinstance(chosen, list) or len(chosen) != 2 or not all(isinstance(name, str) for name in chosen):
        raise UserError(f"settings.devices: {chosen!r}: must be two names, such as /job:worker/task:0/device:GPU:0")
    if unknown := [name for name in chosen if name not in cluster.devices()]:
        raise UserError(f"settings.devices: {', '.join(unknown)}: there are {', '.join(cluster.devices())}")
    return chosen


def _placed(power: Power, n: int, devices: list[str], matrices: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """A graph of both powers and their sum, and the matrices, each where its power is computed."""

    @tf.function(autograph=False)
    def graph(a: Tensor, b: Tensor) -> Tensor:
        with tf.device(devices[0]):
            first = power(a, n)
        # One device does one after the other, as a GPU does: a CPU of one core would use a second one of the machine.
        after = [first] if devices[0] == devices[1] else []
        with tf.device(devices[1]), tf.control_dependencies(after):
            return first + power(b, n)

    placed = []
    for device, matrix in zip(devices, matrices, strict=True):
        with tf.device(device):
            placed.append(tf.identity(tf.constant(matrix)))
        assert short(placed[-1].backing_device) == device
    return graph, placed
