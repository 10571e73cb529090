"""Names of the resources of Kubernetes that are accelerators, as device plugins give them."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ACCELERATOR = re.compile(
    r"gpu|/mig-|cuda|gpu\.intel\.com/|gaudi|tpu|/npu|ascend|/dcu|/mlu|/xpu|neuron|accelerator", re.IGNORECASE
)
_PART = re.compile(r"mem|core|percent|slice-size", re.IGNORECASE)
"""In the names of resources that count parts of devices, such as aliyun.com/gpu-mem and tencent.com/vcuda-core."""


def is_accelerator(resource: str) -> bool:
    """Whether a resource is an accelerator, or a part of one: nvidia.com/gpu, nvidia.com/mig-1g.10gb."""
    return "/" in resource and bool(_ACCELERATOR.search(resource))


def counts_devices(resource: str) -> bool:
    """Whether the number of an accelerator is that of devices, or of slices that look like one each."""
    return is_accelerator(resource) and not _PART.search(resource.rpartition("/")[2])


def asked_by_patch(patch: Mapping[str, object], container: str) -> bool:
    """Whether a patch of a pod asks for an accelerator for this container."""
    spec = patch.get("spec")
    containers = spec.get("containers") if isinstance(spec, dict) else None
    for each in containers if isinstance(containers, list) else ():
        resources = each.get("resources") if isinstance(each, dict) and each.get("name") == container else None
        limits = resources.get("limits") if isinstance(resources, dict) else None
        if isinstance(limits, dict) and any(map(is_accelerator, map(str, limits))):
            return True
    return False
