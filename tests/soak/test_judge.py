"""The judge of the soak, on files as a job leaves them: it finds nothing wrong with right ones, and names what is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.soak import judge
from trainer.model_dir import layout

pytestmark = pytest.mark.soak  # they are a second of it

STEPS, EPOCH, BATCH = 400, 100, 10
Change = Callable[[dict[str, Any]], object]


def right(trial: str) -> dict[str, Any]:
    """What a right job of a trial leaves: run.json, result.json, the lines of metrics.jsonl, the values of checkpoints
    by step, and who has read the training data."""
    run: dict[str, Any] = {
        "steps": STEPS,
        "global_batch": BATCH,
        "sync": True,
        "workers": 2,
        "codes": [0],
        "allowed": [143],
        "marker": "NOBODY_HAS_THIS=1",
        "ports": [1, 1],
        "lost_steps": 0,
        "seconds": 20.0,
        "readers": ["worker:0", "worker:1"],
        "epoch": EPOCH,
    }
    if trial == "evictions":
        run |= {"chief": "worker:0", "evictions": 3, "processes": {"worker:0": [-9, -9, -9, 0], "worker:1": [0]}}
    if trial == "flood":
        posts = {"unsigned": {"403": 90, "none": 3}, "too long": {"413": 9}}
        flood = {"posts": posts, "silent": 700, "asked": 40, "slowest": 0.3, "unanswered": 0}
        run |= {"flood": flood, "pids": {"worker:0": [[1, 2]], "worker:1": [[3, 4]]}}
    figures = {"epochs_ended": 4.0, "epoch": 4.0, "steps_made": 400.0}
    result = {"status": "succeeded", "steps": STEPS, "generations": 1, "seconds": 9.0, "seconds_to_first_step": 3.0}
    files = {
        "run": run,
        "result": result | {f"test_{name}": value for name, value in figures.items()} | {"tasks": {}},
        "curve": [
            {"step": step, "epochs_ended": float(i), "epoch": i + 1.0, "steps_made": step - 49.5}
            for i, step in enumerate(range(EPOCH, STEPS + 1, EPOCH))
        ],
        "checkpoints": {step: values(step) for step in (150, 300, STEPS)},
        "lives": ["worker:0-1", "worker:1-2"],
    }
    if trial == "differs":
        line = "trainer: j failed: worker:1 has 1431 examples, and the chief 1438 examples; every task"
        run |= {"codes": [2], "differs": ["examples", "worker:1"], "printed": ["worker:0 | generation 1", line]}
        files |= {"result": {}, "curve": [], "checkpoints": {}}
    return files


def values(step: int) -> dict[str, Any]:
    return {
        "sgd/iteration": np.int64(step),
        "seen/seen": np.full(BATCH, step / BATCH),
        "epoch_number:0": np.float32((step - 1) // EPOCH + 1),
        "epochs_ended:0": np.float32(step // EPOCH),
        "steps_made:0": np.int64(step),
        "StateVar:0": np.array([3 + 2048 * step, 0, 0]),
    }


def verdict(folder: Path, files: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    (folder / "run").mkdir()
    (folder / "lives").mkdir()
    for name in files["lives"]:
        (folder / "lives" / name).touch()
    run = {**files["run"], "model_dir": str(folder / "run"), "lives": str(folder / "lives")}
    (folder / "run.json").write_text(json.dumps(run))
    layout.make_own(folder / "run")
    layout.result(folder / "run").write_text(json.dumps(files["result"]))
    (folder / "run/metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in files["curve"]))
    for step, by_path in files["checkpoints"].items():
        checkpoint = folder / f"run/checkpoints/step-{step:08d}"
        checkpoint.mkdir(parents=True)
        np.savez(checkpoint / "variables.npz", **{f"v{i}": value for i, value in enumerate(by_path.values())})
        meta = {
            "step": step,
            "sha256": hashlib.sha256((checkpoint / "variables.npz").read_bytes()).hexdigest(),
            "variables": {f"v{i}": {"path": path} for i, path in enumerate(by_path)},
        }
        (checkpoint / "meta.json").write_text(json.dumps(meta))
    return judge.main(folder), capsys.readouterr().out


@pytest.mark.parametrize("trial", ["faults", "evictions", "flood", "differs"])
def test_nothing_is_wrong_with_right_files(tmp_path: Path, capsys: pytest.CaptureFixture[str], trial: str) -> None:
    assert verdict(tmp_path, right(trial), capsys) == (0, "")


def test_the_first_difference_of_a_chief_that_is_unlike_names_another_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = right("differs")
    line = "trainer: j failed: worker:1 has the trained variable left/kernel float32[64,16] where the chief has the "
    files["run"] |= {
        "differs": ["layers", "worker:0"],
        "printed": [f"{line}trained variable right/kernel float32[64,16]"],
    }
    assert verdict(tmp_path, files, capsys) == (0, "")


def test_a_checkpoint_at_the_end_of_an_epoch_may_come_before_its_callbacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = right("faults")
    files["checkpoints"][300] |= {"epochs_ended:0": np.float32(2), "epoch_number:0": np.float32(3)}
    assert verdict(tmp_path, files, capsys) == (0, "")


def checkpoint(step: int, path: str, value: Any) -> Change:
    return lambda files: files["checkpoints"][step].update({path: value})


def run_with(**changed: Any) -> Change:
    return lambda files: files["run"].update(changed)


def flood_with(**changed: Any) -> Change:
    return lambda files: files["run"]["flood"].update(changed)


@pytest.mark.parametrize(
    ("trial", "change", "text"),
    [
        ("faults", checkpoint(STEPS, "seen/seen", np.full(BATCH, 39.0)), "3900.0 examples were applied"),
        ("faults", checkpoint(STEPS, "epochs_ended:0", np.float32(3)), "epochs_ended is 3.0, expected one of [4]"),
        ("faults", checkpoint(150, "epochs_ended:0", np.float32(2)), "epochs_ended is 2.0, expected one of [1]"),
        ("faults", checkpoint(150, "epoch_number:0", np.float32(1)), "epoch_number is 1.0, expected one of [2]"),
        ("faults", checkpoint(300, "steps_made:0", np.int64(301)), "steps_made is 301, expected 300, at most 0 more"),
        ("faults", checkpoint(300, "StateVar:0", np.array([3, 0, 0])), "that of 0.0 steps, expected 300"),
        ("faults", lambda files: files["checkpoints"][150].pop("steps_made:0"), "steps_made is -1"),
        ("faults", lambda files: files["checkpoints"][150].pop("epoch_number:0"), "epoch_number is None"),
        ("faults", lambda files: files["result"].update(test_epoch=1.0), "test_epoch is 1.0 at step 400, expected 4"),
        ("faults", lambda files: files["result"].update(test_epochs_ended=0.0), "test_epochs_ended is 0.0"),
        ("faults", lambda files: files["result"].update(test_steps_made=0.0), "test_steps_made is 0.0"),
        ("faults", lambda files: files["curve"][1].update(epoch=1.5), "epoch is 1.5 at step 200, expected 2"),
        ("faults", lambda files: files["curve"][1].update(epochs_ended=0), "epochs_ended is 0 at step 200, expected 1"),
        ("faults", lambda files: files["curve"][1].update(steps_made=75), "steps_made is 75 at step 200"),
        ("evictions", run_with(evictions=2), "evicted 2 times"),
        ("evictions", run_with(processes={"worker:0": [-9, -9, 0], "worker:1": [0]}), "those of 4 processes"),
        ("evictions", run_with(processes={"worker:0": [-9, -9, -9, 0], "worker:1": [15, 0]}), "worker:1: exit codes"),
        ("evictions", run_with(processes={"worker:0": [-9, -9, -9, 0], "worker:1": [15]}), "worker:1: exit codes"),
        ("flood", flood_with(slowest=21.7), "the slowest 21.7 s"),
        ("flood", flood_with(unanswered=1), "/healthz: 1 without an answer"),
        ("flood", flood_with(posts={"forged": {"200": 1, "403": 90}}), "'forged' were answered by"),
        ("flood", flood_with(posts={"errors": {"400": 90}}), "'errors' were answered by"),
        ("flood", flood_with(posts={"text": {"none": 90}}), "0 of the stranger's posts were answered"),
        ("flood", flood_with(silent=3), "the flood was none"),
        ("flood", run_with(pids={"worker:1": [[3, 4], [3, 5]]}), "worker:1 had several processes"),
        ("flood", run_with(codes=[143, 0]), "exit codes [143, 0], expected 0"),
        ("flood", lambda files: files["result"].update(generations=2), "2 generations, expected 1"),
        ("flood", lambda files: files["lives"].append("worker:1-9"), "2 processes of worker:1 have read"),
        ("differs", run_with(codes=[14]), "exit codes [14], expected 2"),
        ("differs", run_with(printed=["trainer: j failed: a collective failed"]), "the last line is"),
        ("differs", run_with(differs=["examples", "worker:0"]), "the last line is"),
        ("differs", run_with(differs=["layers", "worker:1"]), "the last line is"),
        ("differs", lambda files: files["curve"].append({"step": 1}), "a step was made"),
        ("differs", lambda files: files["checkpoints"].update({1: values(1)}), "a step was made"),
        ("differs", lambda files: files["lives"].append("worker:0-9"), "2 processes of worker:0 have read"),
    ],
)
def test_what_is_wrong_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], trial: str, change: Change, text: str
) -> None:
    change(files := right(trial))
    code, printed = verdict(tmp_path, files, capsys)
    assert code == 1
    assert text in printed
