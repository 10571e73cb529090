"""The mean of random numbers as map and reduce: each task the mean of its slice, the client what they make together.

Where slices differ in size, the mean of the means is wrong; weighted, sum(size_i * mean_i) / total, it is right.
"""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.workloads.cluster import Cluster, ran_on
from trainer.workloads.types import Settings

SETTINGS: Settings = {"numbers": 100, "seed": 1, "slices": None}


def compute(cluster: Cluster) -> dict[str, object]:
    count: int = SETTINGS["numbers"]
    sizes = slice_sizes(count, cluster.tasks, SETTINGS["slices"])
    numbers = np.random.default_rng(SETTINGS["seed"]).normal(5.0, 2.0, count)
    slices = np.split(numbers, np.cumsum(sizes)[:-1])
    means = []
    for device, values in zip(cluster.every_task(), slices, strict=True):
        with tf.device(device):
            means.append(tf.reduce_mean(tf.constant(values)))
        cluster.say(f"mean of {len(values)} numbers = {float(means[-1]):.6f} on {ran_on(means[-1])}")
    unweighted = float(tf.reduce_mean(tf.stack(means)))
    weighted = float(tf.reduce_sum(tf.stack(means) * sizes) / count)
    same = len(set(sizes)) == 1
    cluster.say(f"mean of the means = {unweighted:.6f}, {'right' if same else 'wrong'}: slices of {_listed(sizes)}")
    cluster.say(f"weighted by size  = {weighted:.6f}, right; NumPy says {numbers.mean():.6f}")
    return {"mean": weighted, "mean_of_means": unweighted, "numpy": float(numbers.mean()), "sizes": sizes}


def slice_sizes(count: int, tasks: int, sizes: object) -> list[int]:
    """How many numbers each task gets: those of the setting, or equal parts, the first ones larger by one.

    Raises:
        UserError: a slice for each task must be given, none of them empty, and all together must be `count`.
    """
    if sizes is None:
        if count < tasks:
            raise UserError(f"settings.numbers: {count}: must be at least one for each of the {tasks} tasks")
        return [count // tasks + (task < count % tasks) for task in range(tasks)]
    if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes):
        raise UserError(f"settings.slices: {sizes!r}: must be a list of sizes, each at least 1")
    if len(sizes) != tasks:
        raise UserError(f"settings.slices: {sizes}: {len(sizes)} sizes for {tasks} tasks; give one for each")
    if sum(sizes) != count:
        raise UserError(f"settings.slices: {sizes}: they add up to {sum(sizes)}, settings.numbers is {count}")
    return sizes


def _listed(sizes: list[int]) -> str:
    return f"{len(sizes)} x {sizes[0]}" if len(set(sizes)) == 1 else ", ".join(map(str, sizes))
