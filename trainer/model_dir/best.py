"""The best checkpoint of a job with keep_best, as it is on disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainer.job.spec import JobSpec
from trainer.model_dir import checkpoint, compatibility, layout


@dataclass(frozen=True)
class BestCheckpoint:
    """The best checkpoint, by keep_best."""

    metric: str
    step: int
    value: float


def known(spec: JobSpec, key: Mapping[str, object]) -> BestCheckpoint | None:
    """The best checkpoint that this job has kept; None if there is none. A task that was killed may leave two."""
    keep, folder = spec.keep_best, layout.best(spec.directory)
    best = None
    if keep is None:
        return None
    for step in checkpoint.steps(folder):
        candidate = checkpoint.verify(checkpoint.folder(folder) / checkpoint.name(step))
        record = candidate.meta.get("best") if candidate else None
        if candidate is None or record is None or record["metric"] != keep.metric or "value" not in record:
            continue
        saved = candidate.meta.get("compatibility_key", {})
        if compatibility.differences(saved, key, "", compatibility.MAY_CHANGE_UNDERWAY):
            continue
        if best is None or keep.better(record["value"], best.value):
            best = BestCheckpoint(keep.metric, step, record["value"])
    return best
