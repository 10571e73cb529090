"""SHA-256 of what a workload consists of: a job trains with the code that it began with."""

from __future__ import annotations

from collections.abc import Mapping

from trainer.job import workload_file
from trainer.job.errors import UserError
from trainer.job.spec import JobSpec
from trainer.workloads.workload import file_of


def file_digests(spec: JobSpec) -> dict[str, str]:
    """SHA-256 of the workload's file and of each module beside it that it imports, by name.

    Raises:
        UserError: unknown name, or a file cannot be read.
    """
    try:
        return workload_file.digests(file_of(spec))
    except OSError as error:
        raise _unreadable(spec, error) from None


def digest(spec: JobSpec) -> str:
    """One SHA-256 for `file_digests`: that of the file, if it stands alone.

    Raises:
        UserError: as `file_digests`.
    """
    return workload_file.combined(file_digests(spec))


def require_unchanged(spec: JobSpec, began_with: Mapping[str, str]) -> None:
    """Looks whether the files are as they were when `file_digests` gave `began_with`, at the start of this task.

    Raises:
        UserError: naming those that are not.
    """
    try:
        changed = workload_file.changed(file_of(spec), began_with)
    except OSError as error:
        raise _unreadable(spec, error) from None
    if changed:
        raise UserError(
            f"workload: {', '.join(changed)} changed while the job ran, and all of it must train with the same code; "
            "start the job again, with the change or without it"
        )


def _unreadable(spec: JobSpec, error: OSError) -> UserError:
    return UserError(f"workload: {spec.workload}: cannot be read: {error.strerror}")
