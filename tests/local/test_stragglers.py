"""Real jobs of which one task is slow, or none though the machine is busy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.local.specs import mirrored, parameter_server
from tests.tools.harness import Job

WORKLOAD = str(Path(__file__).parent / "workloads/unequal.py")
TRAIN = {"global_batch_size": 48, "mixed_precision": "bfloat16", "log_steps": 1000, "checkpoint_steps": 100_000}
SHARES = ("input", "compute", "wait", "network", "between")


def unequal(make: Any, slow: str = "") -> dict[str, Any]:
    spec: dict[str, Any] = make(steps=100_000, workers=3, workload=WORKLOAD, settings={"slow": slow}, train=TRAIN)
    del spec["train"]["batch_size"]
    if make is parameter_server:
        spec["train"]["global_batch_size"] = 16
    return spec


def named(job: Job) -> dict[str, Any]:
    found: dict[str, Any] = job.until("a slow task is named", lambda s: s["straggler"])
    return found


@pytest.mark.parametrize(("slow", "text"), [("input", "its steps wait "), ("compute", "its steps compute for ")])
@pytest.mark.slow
def test_a_slow_task_is_named_with_its_cause(slow: str, text: str, tmp_path: Path) -> None:
    with Job(tmp_path, unequal(mirrored, slow)) as job:
        status = named(job)
        assert (status["straggler"]["task"], status["straggler"]["cause"]) == ("worker:1", slow)
        assert status["straggler"]["text"].startswith(f"worker:1 is slow: {text}")
        noted = [event for event in status["events"] if event["kind"] == "slow"]
        assert [event["task"] for event in noted] == ["worker:1"]
        job.until_printed(f"worker:0 | {noted[0]['text']}")
        shares = {name: row["shares"] for name, row in status["tasks"].items()}
        for each in shares.values():
            assert sum(each[part] for part in SHARES) == pytest.approx(1.0)
        assert max(shares["worker:1"], key=lambda part: shares["worker:1"][part]) == slow
        for name in ("worker:0", "worker:2"):
            assert shares[name]["wait"] > shares["worker:1"]["wait"] == 0


@pytest.mark.slow
def test_a_slow_ps_worker_is_named_with_its_cause(tmp_path: Path) -> None:
    with Job(tmp_path, unequal(parameter_server, "compute")) as job:
        status = named(job)
        assert (status["straggler"]["task"], status["straggler"]["cause"]) == ("worker:1", "compute")
        rows = status["tasks"]
        assert rows["chief:0"]["shares"] is rows["ps:0"]["shares"] is None
        assert rows["worker:1"]["steps_made"] < rows["worker:2"]["steps_made"]


@pytest.fixture
def busy() -> Iterator[None]:
    """Two more processes that compute."""
    burners = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    for each in burners:
        each.kill()
        each.wait()


@pytest.mark.slow
@pytest.mark.usefixtures("busy")
@pytest.mark.parametrize("make", [mirrored, parameter_server])
def test_on_a_busy_machine_no_task_is_slow(make: Any, tmp_path: Path) -> None:
    def measured(status: dict[str, Any]) -> bool:
        """Whether each worker has made steps for a minute."""
        rows = [row for name, row in status["tasks"].items() if name.startswith("worker")]
        parts = ("input", "compute", "exchange", "wait")
        return all(sum(row.get(f"seconds_{part}") or 0 for part in parts) > 60 for row in rows)

    with Job(tmp_path, unequal(make)) as job:
        status = job.until("a minute of steps", measured, timeout=240)
        assert [event["text"] for event in status["events"] if event["kind"] == "slow"] == []
