"""Which resources of Kubernetes are accelerators, by the names that device plugins give."""

from __future__ import annotations

import pytest

from trainer.job.accelerators import asked_by_patch, counts_devices, is_accelerator


@pytest.mark.parametrize(
    ("resource", "accelerator", "devices"),
    [
        ("nvidia.com/gpu", True, True),
        ("nvidia.com/gpu.shared", True, True),
        ("nvidia.com/mig-1g.10gb", True, True),
        ("alpha.kubernetes.io/nvidia-gpu", True, True),
        ("amd.com/gpu", True, True),
        ("gpu.intel.com/i915", True, True),
        ("google.com/tpu", True, True),
        ("habana.ai/gaudi", True, True),
        ("huawei.com/Ascend910", True, True),
        ("volcano.sh/vgpu-number", True, True),
        ("volcano.sh/vgpu-memory", True, False),
        ("nvidia.com/gpucores", True, False),
        ("aliyun.com/gpu-mem", True, False),
        ("tencent.com/vcuda-core", True, False),
        ("rdma/hca", False, False),
        ("cpu", False, False),
        ("hugepages-2Mi", False, False),
        ("smarter-devices/fuse", False, False),
    ],
)
def test_accelerators_are_known_by_name(resource: str, accelerator: bool, devices: bool) -> None:
    assert (is_accelerator(resource), counts_devices(resource)) == (accelerator, devices)


@pytest.mark.parametrize(
    ("patch", "asks"),
    [
        ({}, False),
        ({"spec": {"containers": [{"name": "task", "resources": {"limits": {"aliyun.com/gpu-mem": 4}}}]}}, True),
        ({"spec": {"containers": [{"name": "task", "resources": {"limits": {"rdma/hca": 1}}}]}}, False),
        ({"spec": {"containers": [{"name": "other", "resources": {"limits": {"nvidia.com/gpu": 1}}}]}}, False),
        ({"spec": {"containers": "x"}}, False),
        ({"spec": None}, False),
    ],
)
def test_a_patch_asks_for_the_container_s_accelerators(patch: dict[str, object], asks: bool) -> None:
    assert asked_by_patch(patch, "task") == asks
