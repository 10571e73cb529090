"""How long tasks wait for each other on a cluster: images are pulled for minutes, nodes added on demand."""

from __future__ import annotations

from trainer.job.spec import JobSpec
from trainer.targets.kubernetes import pod

PATIENT_SECONDS = 1800.0


def patient(spec: JobSpec) -> JobSpec:
    """The spec as its tasks get it, with the deadlines that it leaves to the target."""
    left = {"start", "rejoin", "chief_lost"} - spec.deadlines.model_fields_set
    if pod.on_one_node(spec):
        # The pods mount the volume that a new chief may need on another node: they must not wait for it long.
        left.discard("chief_lost")
    deadlines = spec.deadlines.model_copy(update=dict.fromkeys(left, PATIENT_SECONDS))
    return spec.model_copy(update={"deadlines": deadlines})
