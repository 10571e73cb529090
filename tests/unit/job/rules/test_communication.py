"""Settings of `communication` that do not go together."""

from typing import Any

import pytest

from trainer.job.errors import UserError
from trainer.job.load import build


def spec_of(strategy: str, **more: Any) -> dict[str, Any]:
    return {"name": "j", "strategy": strategy, **more}


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (
            spec_of("mirrored", communication={"implementation": "ring"}),
            "communication.implementation: 'ring': mirrored knows auto, nccl, hierarchical_copy, "
            "reduction_to_one_device",
        ),
        (
            spec_of("mirrored", communication={"implementation": "nccl"}),
            "communication.implementation: 'nccl': NCCL is for GPUs; set tasks.worker.gpus, or hierarchical_copy or "
            "reduction_to_one_device",
        ),
        (
            spec_of("mirrored", communication={"gradients": "bfloat16"}),
            "communication.gradients: 'bfloat16': mirrored knows float32",
        ),
        (
            spec_of("parameter_server", tasks={"ps": 1}, communication={"gradients": "powersgd"}),
            "communication.gradients: 'powersgd': parameter_server knows float32, bfloat16",
        ),
        (
            spec_of("mirrored", communication={"every": 4}),
            "communication.every: 4: is for parameter_server and multi_worker_mirrored; remove it",
        ),
        (
            spec_of("graph", communication={"every": 4}),
            "communication.every: 4: is for parameter_server and multi_worker_mirrored; remove it",
        ),
        (
            spec_of("parameter_server", tasks={"ps": 1}, communication={"every": 4, "warmup_steps": 7}),
            "communication.warmup_steps: 7: is for multi_worker_mirrored; remove it",
        ),
        (
            spec_of("multi_worker_mirrored", communication={"weights": "bfloat16"}),
            "communication.weights: 'bfloat16': is for parameter_server; remove it",
        ),
        (
            spec_of("parameter_server", tasks={"ps": 1}, communication={"prefetch": True}),
            "communication.prefetch: true: was withdrawn in 0.3: it cost accuracy, and was hardly faster; remove it, "
            "and on a slow network set communication.gradients and communication.weights to bfloat16",
        ),
        (
            spec_of("multi_worker_mirrored", communication={"gradients": "bfloat16", "rank": 6}),
            "communication.rank: 6: is for gradients: powersgd; remove it",
        ),
        (
            spec_of("multi_worker_mirrored", communication={"warmup_steps": 7}),
            "communication.warmup_steps: 7: is for rounds of local steps; set communication.every above 1, or "
            "remove it",
        ),
        (
            spec_of("multi_worker_mirrored", communication={"every": 4}, train={"mixed_precision": "float16"}),
            "communication.every: 4: replicas would skip different batches; use bfloat16, or 1",
        ),
        (
            spec_of("one_device", communication={"implementation": "nccl"}),
            "communication.implementation: 'nccl': one_device knows auto",
        ),
        (
            spec_of(
                "multi_worker_mirrored", communication={"gradients": "powersgd"}, train={"mixed_precision": "float16"}
            ),
            "communication.gradients: 'powersgd': an overflow would stay in what is left out; use bfloat16",
        ),
        (
            spec_of("multi_worker_mirrored", communication={"gradients": "powersgd", "every": 3, "outer": {}}),
            "communication.gradients: 'powersgd': sends no gradients in rounds of local steps; use float32 or "
            "bfloat16, or every: 1",
        ),
        (
            spec_of("parameter_server", tasks={"ps": 1}, communication={"bytes_per_pack": 9_000}),
            "communication.bytes_per_pack: 9000: is for multi_worker_mirrored; remove it",
        ),
    ],
)
def test_what_does_not_go_together_is_reported(raw: dict[str, Any], problem: str) -> None:
    with pytest.raises(UserError) as caught:
        build(raw)
    assert caught.value.problems == (f"spec: {problem}",)
