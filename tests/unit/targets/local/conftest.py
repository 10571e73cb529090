"""What tests of local jobs start from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.targets.local.stand_in import make
from trainer.job.spec import JobSpec
from trainer.targets.local import ports, processes


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobSpec:
    """Of chief:0, worker:0, worker:1 and ps:0, to be run in its own folder, with short waits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, "BACKOFF_SECONDS", (0.01,))
    return make()


@pytest.fixture
def free_ports() -> Callable[[int], int]:
    def find(count: int) -> int:
        with ports.reserve([str(i) for i in range(count)]) as taken:
            return taken["0"]

    return find
