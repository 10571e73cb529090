"""Which advice fits the reason of a pod that waits."""

from __future__ import annotations

import pytest

from trainer.debug.symptoms import SYMPTOMS

UNSCHEDULABLE = "on Kubernetes `Unschedulable`"
CONTROL_PLANE = "1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }"
REASONS = {
    "3 Insufficient cpu.": [UNSCHEDULABLE],
    "1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 Insufficient memory.": [
        UNSCHEDULABLE
    ],
    "1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 Insufficient nvidia.com/gpu.": [
        f"{UNSCHEDULABLE}, with `Insufficient` GPUs"
    ],
    "3 node(s) had untolerated taint {nvidia.com/gpu: present}.": [f"{UNSCHEDULABLE}, with an `untolerated taint`"],
    "1 node(s) had untolerated taint {pool: x}, 2 Insufficient cpu.": [
        f"{UNSCHEDULABLE}, with an `untolerated taint`",
        UNSCHEDULABLE,
    ],
    "3 node(s) didn't match Pod's node affinity/selector.": [f"{UNSCHEDULABLE}, with `node affinity/selector`"],
    "1 node(s) had volume node affinity conflict.": [f"{UNSCHEDULABLE}, with `node affinity/selector`"],
    "pod has unbound immediate PersistentVolumeClaims.": ["on Kubernetes a claim that is not bound"],
    'persistentvolumeclaim "team" not found.': ["on Kubernetes a claim that is not bound"],
    "3 node(s) had untolerated taint {node.kubernetes.io/not-ready: }.": [UNSCHEDULABLE],
}


@pytest.mark.parametrize("reason", REASONS)
def test_the_advice_fits_what_the_scheduler_says(reason: str) -> None:
    text = (
        f"Unschedulable: 0/3 nodes are available: {reason} preemption: 0/3 nodes are available: 3 No preemption victims"
    )
    assert [each.shown for each in SYMPTOMS if each.found_in(text)] == REASONS[reason]
