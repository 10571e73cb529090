"""GPUs by NVML: with NVIDIA's package where there is no GPU, and with a stand-in for its library where one answers."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import ModuleType, SimpleNamespace

import pynvml
import pytest

from trainer.supervisor.metrics import gpus
from trainer.supervisor.metrics.gpus import Gpu, Gpus


class Answering(ModuleType):
    """Two devices; of the second one, a part of a GPU, the utilisation is not known."""

    NVMLError = pynvml.NVMLError

    def nvmlInit(self) -> None:
        pass

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUUID(self, handle: int) -> str | bytes:
        return "GPU-b" if handle else b"GPU-a"

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> SimpleNamespace:
        return SimpleNamespace(used=10 + handle, total=100)

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> SimpleNamespace:
        if handle:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return SimpleNamespace(gpu=50, memory=1)


FIRST, SECOND = Gpu(0, "GPU-a", 0.5, 10, 100), Gpu(1, "GPU-b", None, 11, 100)


@pytest.mark.parametrize(
    ("visible", "found"),
    [(None, [FIRST, SECOND]), ("1", [SECOND]), ("GPU-a, 1", [FIRST, SECOND]), ("-1", []), ("", [])],
)
def test_the_devices_that_the_task_may_use(visible: str | None, found: list[Gpu]) -> None:
    assert gpus.devices(Answering("pynvml"), visible) == found


def test_the_stand_in_has_the_names_of_the_package() -> None:
    assert all(hasattr(pynvml, name) for name in vars(Answering) if name.startswith("nvml"))


def test_without_a_driver_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: str) -> None:
        raise OSError("libnvidia-ml.so.1")

    monkeypatch.setattr("ctypes.CDLL", refuse)  # as on a machine without GPUs, wherever this test runs
    assert gpus.devices(pynvml, None) == []


def test_without_the_package_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert asyncio.run(Gpus(1).read()) == []


def test_a_task_without_gpus_does_not_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "devices", lambda *_: pytest.fail("asked"))
    assert asyncio.run(Gpus(0).read()) == []


def test_a_driver_that_hangs_costs_a_reading_a_second_and_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, asked = threading.Event(), list[None]()

    def hang(*_: object) -> list[Gpu]:
        asked.append(None)
        gate.wait()
        return [FIRST]

    async def run() -> tuple[list[list[Gpu]], list[Gpu]]:
        of_task = Gpus(1)
        silent = [await of_task.read(), await of_task.read()]
        gate.set()
        return silent, await of_task.read()

    monkeypatch.setattr(gpus, "devices", hang)
    monkeypatch.setattr(gpus, "ANSWER_SECONDS", 0.05)
    silent, later = asyncio.run(run())
    assert silent == [[], []]
    assert len(asked) == 1
    assert later == [FIRST]
