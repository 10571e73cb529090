"""Memory and utilisation of a task's GPUs, where NVIDIA's library (NVML) and its package nvidia-ml-py are installed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from types import ModuleType
from typing import NamedTuple

ANSWER_SECONDS = 1.0
"""Longest wait for the driver: one that hangs must not stop the readings."""


class Gpu(NamedTuple):
    number: int
    uuid: str
    utilization: float | None
    """Share of time, 0 to 1. None if the device does not tell, as a part of one (MIG)."""
    memory_used: int | None
    memory_size: int | None


class Gpus:
    """The GPUs of one task."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._reading: Future[list[Gpu]] | None = None

    async def read(self) -> list[Gpu]:
        """Empty if the task has none, or NVML does not answer in time."""
        if not self._count:
            return []
        if self._reading is None or self._reading.done():
            self._reading = Future()
            # A daemon: the process may end while the driver hangs.
            threading.Thread(target=_fill, args=(self._reading,), daemon=True).start()
        with contextlib.suppress(asyncio.TimeoutError):
            return await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(self._reading)), ANSWER_SECONDS)
        return []


def _fill(future: Future[list[Gpu]]) -> None:
    try:
        import pynvml
    except ImportError:
        future.set_result([])
    else:
        future.set_result(devices(pynvml, os.environ.get("CUDA_VISIBLE_DEVICES")))


def devices(nvml: ModuleType, visible: str | None) -> list[Gpu]:
    """
    Args:
        visible: indexes or UUIDs, as CUDA reads them; None for all.
    """
    try:
        nvml.nvmlInit()  # again and again: it counts
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        gpus = [_device(nvml, index, handle) for index, handle in enumerate(handles)]
    except (nvml.NVMLError, OSError):
        return []
    wanted = None if visible is None else [each.strip() for each in visible.split(",")]
    return [gpu for gpu in gpus if wanted is None or str(gpu.number) in wanted or gpu.uuid in wanted]


def _device(nvml: ModuleType, index: int, handle: object) -> Gpu:
    def answer_of(ask: Callable[[], float]) -> float | None:
        try:
            return ask()
        except nvml.NVMLError:
            return None

    uuid = nvml.nvmlDeviceGetUUID(handle)
    used = answer_of(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used)
    size = answer_of(lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total)
    return Gpu(
        index,
        uuid.decode() if isinstance(uuid, bytes) else uuid,
        answer_of(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100),
        None if used is None else int(used),
        None if size is None else int(size),
    )
