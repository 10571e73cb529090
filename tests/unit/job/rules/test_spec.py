"""Rules between fields for strategies with one task, graph jobs and learning rate schedules."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.job.derived import learning_rate, replicas_in_sync
from trainer.job.errors import UserError
from trainer.job.load import build

ONE = "trains in one task, on its devices; for several tasks use multi_worker_mirrored"


def spec_of(strategy: str, **more: Any) -> dict[str, Any]:
    return {"name": "j", "strategy": strategy, **more}


def worker(**settings: Any) -> dict[str, Any]:
    return {"worker": settings}


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (spec_of("mirrored", tasks={"worker": 2}), f"tasks.worker.replicas: 2: mirrored {ONE}"),
        (spec_of("one_device", tasks={"chief": 1}), f"tasks.chief: 1: one_device {ONE}"),
        (spec_of("tpu", tasks={"ps": 1}), "tasks.ps: 1: tpu has no ps; remove tasks.ps"),
        (
            spec_of("graph", workload="sum", tasks={"evaluator": 1}),
            "tasks.evaluator: 1: a graph job has no checkpoints to evaluate; remove tasks.evaluator",
        ),
        (
            spec_of("graph", workload="sum", job_name="chief"),
            "job_name: 'chief': is the client's own name; choose another",
        ),
        (
            spec_of("mirrored", api="keras_fit", train={"optimizer": "sgd"}),
            "train.optimizer: 'sgd': under keras_fit the workload's model.compile sets that; remove it",
        ),
        (
            spec_of("mirrored", api="train_and_evaluate", train={"epochs": 2}),
            "train.epochs: 2: under train_and_evaluate the workload's input_fn provides the data; remove it, and give "
            "steps",
        ),
        (
            spec_of("mirrored", api="train_and_evaluate", dataset="mnist"),
            "dataset: 'mnist': under train_and_evaluate the workload's input_fn provides the data; remove it",
        ),
        (
            spec_of("graph", workload="sum", api="keras_fit"),
            "api: 'keras_fit': a graph job trains nothing by an API; remove it, or choose another strategy",
        ),
        (
            spec_of("mirrored", tasks=worker(gpus=2), devices=["GPU:0", "GPU:2"]),
            'devices: ["GPU:0", "GPU:2"]: GPU:2: the task has GPU:0, GPU:1, CPU:0; more with tasks.worker.gpus or '
            ".cpu_devices",
        ),
        (
            spec_of("mirrored", tasks=worker(gpus=2), devices=["GPU:0", "CPU:0"]),
            'devices: ["GPU:0", "CPU:0"]: must be different devices of one kind',
        ),
        (
            spec_of("one_device", tasks=worker(cpu_devices=2), devices=["CPU:0", "CPU:1"]),
            'devices: ["CPU:0", "CPU:1"]: one_device computes on one; name one, or use mirrored',
        ),
        (
            spec_of("multi_worker_mirrored", devices=["CPU:0"]),
            'devices: ["CPU:0"]: is for mirrored, central_storage and one_device; the others use all devices of a task',
        ),
        (
            spec_of("multi_worker_mirrored", tasks={"chief": 1, "worker": {"cpu_devices": 2}}),
            "tasks.chief.cpu_devices: 1: the chief trains too: give it the workers' 2",
        ),
        (
            spec_of("mirrored", tasks=worker(cpu_devices=2), train={"learning_rates": {64: 0.1, 256: 0.2}}),
            'train.learning_rates: {"64": 0.1, "256": 0.2}: has no rate for the global batch size 128; it has 64, 256',
        ),
        (
            spec_of("one_device", train={"learning_rates": {64: 0.1}, "learning_rate_scaling": "sqrt"}),
            "train.learning_rate_scaling: 'sqrt': learning_rates already gives the rate; remove it",
        ),
    ],
)
def test_what_does_not_go_together_is_reported(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError) as caught:
        build(raw)
    assert caught.value.problems == (f"spec: {problem}",)


@pytest.mark.parametrize(
    ("raw", "replicas"),
    [
        (spec_of("one_device", tasks=worker(cpu_devices=4)), 1),
        (spec_of("mirrored", tasks=worker(cpu_devices=4)), 4),
        (spec_of("mirrored", tasks=worker(gpus=3)), 3),
        (spec_of("mirrored", tasks=worker(gpus=3), devices=["GPU:0", "GPU:2"]), 2),
        (spec_of("central_storage", tasks=worker(gpus=2)), 2),
        (spec_of("tpu"), 8),
        (spec_of("tpu", tpu={"cores": 4}), 4),
        (spec_of("multi_worker_mirrored", tasks=worker(replicas=2, cpu_devices=2)), 4),
        (spec_of("multi_worker_mirrored", tasks=worker(replicas=2, cpu_devices=2, gpus=1)), 2),
    ],
)
def test_replicas_are_devices(raw: dict[str, Any], replicas: int) -> None:
    spec = build(raw)
    assert replicas_in_sync(spec, spec.tasks.counts()) == replicas


@pytest.mark.parametrize(("devices", "rate"), [(1, 0.1), (2, 0.15)])
def test_the_rate_is_that_of_the_global_batch_size(devices: int, rate: float) -> None:
    """The guide's table: LEARNING_RATES_BY_BATCH_SIZE = {5: 0.1, 10: 0.15}."""
    train = {"batch_size": 5, "learning_rates": {5: 0.1, 10: 0.15}}
    spec = build(spec_of("mirrored", tasks=worker(cpu_devices=devices), train=train))
    assert learning_rate(spec, spec.tasks.counts()) == rate
