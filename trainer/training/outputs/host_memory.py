"""Copies of variables in memory of their own."""

from __future__ import annotations

import functools
import itertools
import mmap
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from trainer import host
from trainer.model_dir.checkpoint import Array
from trainer.training.model.state import as_array
from trainer.workloads.types import Tensor

LARGE = 1 << 22
"""An array of this many bytes or more gets memory that is kept."""
PART = 32 << 20
"""Bytes that a thread copies at once."""


class HostMemory:
    """Memory for one copy of each variable. It is kept: new memory takes ten times as long as the copy into it.

    Args:
        threads: that copy at once.
        like: variables that will be copied. Memory for them is made while training begins.
    """

    def __init__(self, threads: int, like: Mapping[str, Tensor]) -> None:
        self._pool = ThreadPoolExecutor(threads, "copy")
        self._kept = {name: _room(each) for name, each in _large(_here(like)).items()}
        rooms = list(self._kept.values())
        self._made = self._pool.submit(host.at_lowest_priority, functools.partial(_touch, rooms))

    def copies(self, values: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Copies the tensors that are in this task's memory; leaves those on ps, and arrays, as they are.

        Copies of large ones hold until the next call. An update of a tensor that someone holds would copy it too, but
        on the path of the step, and into memory that TensorFlow's allocator keeps (decision 66).
        """
        self._made.result()
        here = _here(values)
        large = _large(here)
        self._kept = {name: self._room_for(name, each) for name, each in large.items()}
        parts = itertools.chain.from_iterable(_parts(self._kept[name], each) for name, each in large.items())
        list(self._pool.map(lambda part: np.copyto(*part), parts))
        return {**values, **{name: np.array(each) for name, each in here.items() if name not in large}, **self._kept}

    def _room_for(self, name: str, array: Array) -> Array:
        kept = self._kept.get(name)
        if kept is not None and (kept.shape, kept.dtype) == (array.shape, array.dtype):
            return kept
        return _room(array)


def _here(values: Mapping[str, Tensor]) -> dict[str, Array]:
    """The tensors that are in this task's memory."""
    return {name: as_array(each) for name, each in values.items() if tf.is_tensor(each) and _is_here(each)}


def _is_here(tensor: Tensor) -> bool:
    return "CPU" in tensor.backing_device and "/job:ps/" not in tensor.backing_device


def _large(arrays: Mapping[str, Array]) -> dict[str, Array]:
    return {name: each for name, each in arrays.items() if each.nbytes >= LARGE}


def _room(array: Array) -> Array:
    pages = mmap.mmap(-1, array.nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):  # Linux: pages of 2 MiB where it has them
        pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, array.dtype).reshape(array.shape)


def _touch(rooms: Iterable[Array]) -> None:
    for room in rooms:
        room.fill(0)


def _parts(to: Array, array: Array) -> Iterator[tuple[Array, Array]]:
    there, flat = (each.reshape(-1).view(np.uint8) for each in (to, array))
    for i in range(0, len(flat), PART):
        yield there[i : i + PART], flat[i : i + PART]
