"""Settings that determine a job's result, and settings that may change before it is resumed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trainer.job.errors import Exit, UserError
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.model_dir import checkpoint_meta, compatibility, layout, result
from trainer.model_dir.files import write_json
from trainer.model_dir.result import Finished
from trainer.workloads.digests import digest

WORKLOAD = "DATASET = 'digits'\nSETTINGS = {'units': 64}\ndef model(): ...\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(WORKLOAD)
    Path("other.py").write_text(WORKLOAD)
    np.savez("mine.npz", x=np.zeros(5))
    return tmp_path


def spec_of(**changes: Any) -> JobSpec:
    raw: dict[str, Any] = {
        "name": "j",
        "strategy": "multi_worker_mirrored",
        "workload": "mine.py",
        "dataset": "mine.npz",
        "tasks": {"worker": 2},
    }
    train = {"steps": 100, "batch_size": 32, **changes.pop("train", {})}
    return build({**raw, **changes, "train": train})


def key(spec: JobSpec) -> dict[str, Any]:
    """As it comes back from a file."""
    value: dict[str, Any] = json.loads(json.dumps(compatibility.key(spec, spec.tasks.counts(), digest_of(spec))))
    return value


def digest_of(spec: JobSpec) -> str | None:
    return digest(spec) if Path(spec.workload).exists() else None


DECIDES = [
    ({"workload": "other.py"}, "workload: result 'mine.py', now 'other.py'"),
    ({"settings": {"units": 8}}, "settings: result {}, now {'units': 8}"),
    ({"strategy": "parameter_server", "tasks": {"ps": 1}}, "strategy: result 'multi_worker_mirrored', now 'param"),
    ({"api": "keras_fit"}, "api: result 'loop', now 'keras_fit'"),
    ({"dataset": "digits"}, "dataset: result 'mine.npz', now 'digits'"),
    ({"tasks": {"worker": 3}}, "replicas in sync: result 2, now 3; global batch size: result 64, now 96"),
    ({"train": {"batch_size": 16}}, "global batch size: result 64, now 32"),
    ({"train": {"optimizer": "sgd"}}, "train.optimizer: result 'adam', now 'sgd'"),
    ({"train": {"learning_rate": 0.5}}, "train.learning_rate: result 0.001, now 0.5"),
    ({"train": {"learning_rate_scaling": "linear"}}, "train.learning_rate: result 0.001, now 0.002"),
    ({"train": {"seed": 1}}, "train.seed: result 0, now 1"),
    ({"train": {"deterministic": True}}, "train.deterministic: result False, now True"),
    ({"train": {"mixed_precision": "bfloat16"}}, "train.mixed_precision: result 'none', now 'bfloat16'"),
    ({"communication": {"gradients": "bfloat16"}}, "communication.gradients: result 'float32', now 'bfloat16'"),
]  # fmt: skip
MAY_CHANGE: list[dict[str, Any]] = [
    {},
    {"train": {"steps": 200}},
    {"train": {"learning_rates": {64: 1e-3}}},
    {"train": {"log_steps": 7, "checkpoint_steps": 7, "keep_checkpoints": 7, "steps_per_call": 7}},
    {"train": {"batch_size": None, "global_batch_size": 64}},
    {"tasks": {"worker": {"replicas": 2, "cpu": 1}, "evaluator": 1}},
    {"image": "mine:1", "warm_standby": False, "max_restarts": 9, "deadlines": {"hang": 9}},
    {"communication": {"implementation": "ring", "bytes_per_pack": 0}},
]


@pytest.mark.parametrize(("changes", "message"), DECIDES)
def test_a_result_of_other_values_is_refused_with_the_differences(
    files: Path, changes: dict[str, Any], message: str
) -> None:
    found = Finished(key(spec_of()))
    spec = spec_of(**changes)
    with pytest.raises(UserError) as caught:
        result.refuse_another_jobs(found, spec, key(spec))
    assert str(caught.value).startswith(f"model_dir: runs/j: it holds the result of another job: {message}")
    assert str(caught.value).endswith("; undo the change, or choose another model_dir")
    assert caught.value.code is Exit.USER
    different = checkpoint_meta.differences({"step": 5, "compatibility_key": key(spec_of())}, spec, key(spec))
    if message.startswith("train.learning_rate:"):  # a job may go on with another one
        assert not different
    else:
        assert different[0].startswith(message.replace("result ", "checkpoint ").partition(";")[0])


@pytest.mark.parametrize("changes", MAY_CHANGE)
def test_what_decides_nothing_may_change(files: Path, changes: dict[str, Any]) -> None:
    spec = spec_of(**changes)
    result.refuse_another_jobs(Finished(key(spec_of())), spec, key(spec))
    assert checkpoint_meta.differences({"step": 5, "compatibility_key": key(spec_of())}, spec, key(spec)) == []


def test_ps_and_their_workers_may_change() -> None:
    def served(workers: int, ps: int) -> dict[str, Any]:
        tasks = {"worker": workers, "ps": ps}
        return key(build({"name": "j", "strategy": "parameter_server", "workload": "digits", "tasks": tasks}))

    assert served(2, 1) == served(5, 3)


def test_another_content_of_workload_or_dataset_is_another_job(files: Path) -> None:
    spec = spec_of()
    before = key(spec)
    Path("mine.py").write_text(WORKLOAD + "# mended\n")
    (message,) = compatibility.differences(before, key(spec), "result")
    assert message.startswith(f"workload_sha256: result {before['workload_sha256'][:12]}..., now ")
    assert checkpoint_meta.differences({"step": 5, "compatibility_key": before}, spec, key(spec)) == [], (
        "underway it may be mended"
    )
    Path("mine.py").write_text(WORKLOAD)
    np.savez("mine.npz", x=np.zeros(6))
    (message,) = compatibility.differences(before, key(spec), "result")
    assert message.startswith(f"dataset_sha256: result {before['dataset_sha256'][:12]}..., now ")
    assert checkpoint_meta.differences({"step": 5, "compatibility_key": before}, spec, key(spec)) != []


def test_what_an_older_version_did_not_write_is_not_compared(files: Path) -> None:
    old = {"workload": "mine.py", "dataset": "mine.npz", "train.optimizer": "adam"}
    assert compatibility.differences(old, key(spec_of()), "result") == []
    assert compatibility.differences(old, key(spec_of(api="keras_fit")), "result") == [
        "api: result 'loop', now 'keras_fit'"
    ]


def test_a_file_that_is_not_there_is_not_compared(files: Path) -> None:
    before = key(spec_of())
    for name in ("mine.py", "mine.npz"):
        Path(name).unlink()
    assert compatibility.differences(before, key(spec_of()), "result") == []


@pytest.mark.parametrize(
    ("train", "complete"),
    [
        ({}, True),
        ({"steps": 101}, False),
        ({"steps": None, "epochs": 2}, False),
        ({"steps": None}, False),
    ],
)
def test_a_job_is_complete_when_its_result_matches_the_spec(files: Path, train: dict[str, Any], complete: bool) -> None:
    spec = spec_of(model_dir=str(files))
    own = digest(spec)
    assert result.completed(spec, spec.tasks.counts(), own) is None
    wanted = {**key(spec), **result.steps_asked(spec)}
    write_json(layout.result(str(files)), {"status": "succeeded", "steps": 100, "compatibility_key": wanted})
    asked = spec_of(model_dir=str(files), train=train)
    assert bool(result.completed(asked, asked.tasks.counts(), own)) == complete
    other = spec_of(model_dir=str(files), train={"seed": 1})
    assert result.completed(other, other.tasks.counts(), own) is None


def test_steps_that_are_asked_for_in_another_way_are_the_same(files: Path) -> None:
    found = Finished(result.steps_asked(spec_of(train={"steps": None})), 1000)
    assert result.has_all_steps(found, spec_of(train={"steps": 1000}))


def test_a_program_in_another_image_is_another_job_if_the_image_has_the_code() -> None:
    def key(image: str, of_workers: str | None, code: list[str]) -> dict[str, object]:
        tasks = {"chief": 1, "worker": {"replicas": 2, **({"image": of_workers} if of_workers else {})}}
        spec = build(
            {
                "name": "j", "strategy": "multi_worker_mirrored", "program": ["python", "train.py"], "tasks": tasks,
                "image": image, "code": code, "working_dir": "/app",
            }
        )  # fmt: skip
        return compatibility.key(spec, spec.tasks.counts(), "none")

    first = key("mine:1", None, [])
    assert not compatibility.differences(first, key("mine:1", "mine:1", []), "result")
    for other in (key("mine:2", None, []), key("mine:1", "mine:2", [])):
        assert compatibility.differences(first, other, "result")
    assert key("mine:1", None, ["."]) == key("mine:2", None, ["."])
