"""Checks what an earlier run left in model_dir: a result of this job, or a checkpoint, which must fit it."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.job.spec import JobSpec
from trainer.model_dir import checkpoint, checkpoint_meta, compatibility, layout, result
from trainer.model_dir.result import Finished
from trainer.protocol.log_lines import log_line


def result_of_this_job(spec: JobSpec, key: Mapping[str, object]) -> Finished | None:
    """The result of this job, if it is already complete; None otherwise.

    Raises:
        UserError: it is the result of another job.
    """
    finished = result.finished(spec.directory)
    if finished is None:
        return None
    if spec.program:
        if compatibility.differences(finished.key, key, "result"):  # it knows itself what it continues
            return None
    elif spec.traits.trains:
        result.refuse_another_jobs(finished, spec, key)
    elif compatibility.differences(finished.key, key, "result"):  # A graph job has only its result: compute it again.
        return None
    if not result.has_all_steps(finished, spec):
        return None
    log_line(f"already complete: {layout.result(spec.directory)}; choose another model_dir to train again")
    return finished


def check_checkpoint(spec: JobSpec, key: Mapping[str, object]) -> list[str]:
    """Compares the newest checkpoint with the spec; returns warnings for the result.

    Raises:
        UserError: it does not fit.
    """
    if not spec.runs.checkpoints:
        return []
    # The child verifies its SHA-256: for 8 GB that takes 40 s, during which a supervisor could not answer.
    newest = checkpoint.newest(spec.directory)
    if newest is None:
        return []
    if different := checkpoint_meta.differences(newest.meta, spec, key):
        raise checkpoint_meta.refusal(newest.meta, spec.directory, different)
    changes = checkpoint.workload_changes(spec.directory, key)
    warnings = [f"the code of {spec.workload} was changed after step {step}" for step in changes]
    for warning in warnings:
        log_line(f"{warning}, and training continues with the changed code")
    return warnings


def newest_step(spec: JobSpec) -> int | None:
    """Step of the newest checkpoint that is complete, verified or not."""
    steps = checkpoint.steps(spec.directory) if spec.runs.checkpoints else []
    return steps[-1] if steps else None
