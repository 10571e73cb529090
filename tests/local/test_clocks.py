"""To measure the time of steps changes nothing in what they compute: all values of a checkpoint are equal, to the bit.

Tasks of one thread each add up in the same order in each run, and a sum of two has no order; so runs are repeatable.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.local.specs import mirrored
from tests.tools.harness import Job, saved_values

WORKLOADS = Path(__file__).parent / "workloads"
STEP = 30
TRAIN = {"batch_size": 16, "checkpoint_steps": STEP, "keep_checkpoints": 1000, "log_steps": 10_000}


def trained(folder: Path, workload: str, precision: str, **more: Any) -> tuple[dict[str, Any], float]:
    """The values after STEP steps of two tasks, and the seconds of exchanges that were measured."""
    folder.mkdir()
    tasks = {"worker": {"replicas": 2, "cpu": 1}}
    train = {**TRAIN, "mixed_precision": precision}
    spec = mirrored(steps=10**6, workload=str(WORKLOADS / f"{workload}.py"), tasks=tasks, train=train, **more)
    if workload != "measured":  # its optimizers have rates of their own
        del spec["train"]["learning_rate"]
    with Job(folder, spec) as job:
        job.until("a checkpoint", lambda s: (s["last_checkpoint"] or 0) >= STEP)
        row = job.until("times", lambda s: s["tasks"]["worker:1"].get("seconds_exchange") is not None)["tasks"]
    return saved_values(job.model_dir, STEP), row["worker:1"]["seconds_exchange"]


WITHOUT = {"settings": {"without": "clocks"}}
CASES = [
    pytest.param(("adversarial", {}), ("unclocked", {}), "none", id="two optimizers"),
    pytest.param(("measured", {}), ("measured", WITHOUT), "none", id="BatchNormalization", marks=pytest.mark.slow),
    pytest.param(("measured", {}), ("measured", WITHOUT), "float16", id="float16", marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize(("clocked", "unclocked", "precision"), CASES)
def test_weights_are_those_of_a_loop_without_clocks(
    clocked: tuple[str, dict[str, Any]], unclocked: tuple[str, dict[str, Any]], precision: str, tmp_path: Path
) -> None:
    values, seconds = trained(tmp_path / "with", clocked[0], precision, **clocked[1])
    without, none = trained(tmp_path / "without", unclocked[0], precision, **unclocked[1])
    assert seconds > 0 == none
    assert values.keys() == without.keys()
    assert {name for name, value in values.items() if value.tobytes() != without[name].tobytes()} == set()


@pytest.mark.slow
def test_the_average_at_the_end_of_a_round_is_an_exchange(tmp_path: Path) -> None:
    """Between two averages there is none, and all of the time is known."""
    spec = mirrored(steps=10**6, train={"batch_size": 16, "log_steps": 10_000}, communication={"every": 6})
    with Job(tmp_path, spec) as job:
        job.until("an average", lambda s: all((t.get("seconds_exchange") or 0) > 0 for t in s["tasks"].values()))
