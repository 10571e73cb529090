"""meta.json: how a job differs from a checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.model_dir import checkpoint, checkpoint_meta, compatibility

DIGITS = {"name": "j", "strategy": "multi_worker_mirrored", "workload": "digits", "train": {"steps": 100}}
META: checkpoint_meta.Meta = {
    "step": 50,
    "compatibility_key": {"workload": "digits", "dataset": None, "train.optimizer": "adam"},
    "variables": {
        "model.000": {"path": "dense/kernel", "shape": [64, 10], "dtype": "float32"},
        "optimizer.000": {"path": "adam/iteration", "shape": [], "dtype": "int64"},
    },
}
KERNEL, ITERATION = META["variables"].values()

# Each: what the spec has, what the model's variables are, and the difference that is named.
DIFFERENT: list[tuple[dict[str, Any], dict[str, Any] | None, list[str]]] = [
    ({}, META["variables"], []),
    ({}, {"model.000": {**KERNEL, "shape": (64, 10)}, "optimizer.000": ITERATION}, []),
    ({"train": {"steps": 50}}, None, []),
    ({"train": {"epochs": 1}}, None, []),
    ({"train": {"steps": 100, "optimizer": "sgd"}}, None, ["train.optimizer: checkpoint 'adam', now 'sgd'"]),
    ({"workload": "/home/x/job.py"}, None, ["workload: checkpoint 'digits', now 'job.py'"]),
    ({"dataset": "mnist"}, None, ["dataset: checkpoint None, now 'mnist'"]),
    ({"train": {"steps": 49}}, None, ["train.steps: the checkpoint is at step 50, this job ends at step 49"]),
    (
        {},
        {"model.000": {**KERNEL, "shape": [64, 20]}, "optimizer.000": ITERATION},
        ["variable dense/kernel: checkpoint float32[64, 10], model float32[64, 20]"],
    ),
    (
        {},
        {"model.000": {**KERNEL, "dtype": "float16"}, "optimizer.000": ITERATION},
        ["variable dense/kernel: checkpoint float32[64, 10], model float16[64, 10]"],
    ),
    ({}, {"model.000": KERNEL}, ["variable adam/iteration is only in the checkpoint"]),
    (
        {},
        {**META["variables"], "model.001": {"path": "dense/bias", "shape": [10], "dtype": "float32"}},
        ["variable dense/bias is only in the model"],
    ),
    ({"dataset": "mnist"}, {"model.000": KERNEL}, ["dataset: checkpoint None, now 'mnist'", "variable adam/iterat"]),
    (
        {},
        {**META["variables"], **{f"model.{i:03d}": {**KERNEL, "path": f"extra{i}"} for i in range(1, 9)}},
        [*(f"variable extra{i} is only in the model" for i in range(1, 6)), "and 3 more"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "variables", "expected"), DIFFERENT)
def test_what_does_not_fit_is_named(
    changes: dict[str, Any], variables: dict[str, Any] | None, expected: list[str]
) -> None:
    spec = build({**DIGITS, **changes})
    found = checkpoint_meta.differences(META, spec, compatibility.key(spec, spec.tasks.counts(), None), variables)
    assert len(found) == len(expected)
    assert all(line.startswith(start) for line, start in zip(found, expected, strict=True)), found


@pytest.mark.parametrize(
    ("now", "named"),
    [
        ("adam_1/dense_1_kernel_velocity", None),
        ("adafactor/kernel", None),
        ("rm_sprop/dense_kernel_momentum", "velocity"),
    ],
)
def test_what_another_optimizer_has_kept_is_no_use(now: str, named: str | None) -> None:
    spec = build(DIGITS)
    slot: checkpoint_meta.Variable = {**KERNEL, "path": "adam/dense_kernel_velocity"}
    meta: checkpoint_meta.Meta = {"step": 50, "compatibility_key": {}, "variables": {"optimizer.002": slot}}
    found = checkpoint_meta.differences(meta, spec, {}, {"optimizer.002": {**slot, "path": now}})
    expected = f"variable {now}: the checkpoint has {named} there, of another optimizer"
    assert found == ([expected] if named else [])


def test_the_compatibility_key_survives_a_round_trip_through_the_file(tmp_path: Path) -> None:
    spec = build(DIGITS)
    key = compatibility.key(spec, spec.tasks.counts(), None)
    path = checkpoint.save(tmp_path, 50, {}, {"compatibility_key": key})
    meta = json.loads((path / "meta.json").read_text())
    assert checkpoint_meta.differences(meta, spec, key) == []


def test_a_refusal_names_the_folder_the_differences_and_the_way_out() -> None:
    error = checkpoint_meta.refusal(META, "runs/j", ["a: 1", "b: 2"])
    assert error.code is Exit.USER
    assert str(error) == (
        "model_dir: runs/j: its checkpoint of step 50 does not fit this spec: a: 1; b: 2; "
        "undo the change, or choose another model_dir"
    )


def test_the_key_of_version_0_2_is_read_under_its_new_name(tmp_path: Path) -> None:
    (tmp_path / "meta.json").write_text('{"step": 5, "variables": {}, "fits": {"train.seed": 7}}')
    found = checkpoint_meta.read(tmp_path)
    assert found is not None
    assert found["compatibility_key"] == {"train.seed": 7}
