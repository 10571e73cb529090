"""SHA-256 of a workload's files: a job must train with the code that it began with."""

from __future__ import annotations

import os
from collections.abc import Mapping

from trainer.job import code, environment, workload_file
from trainer.job.errors import UserError
from trainer.job.spec import JobSpec
from trainer.workloads.workload import file_of


def file_digests(spec: JobSpec) -> dict[str, str]:
    """SHA-256 of the workload's file and of each module beside it that it imports, by name; or of all its `code`.

    Raises:
        UserError: the name is unknown, or a file cannot be read.
    """
    if spec.program:
        return _of_program(spec)
    try:
        return code.digests(spec) if spec.code else workload_file.digests(file_of(spec))
    except OSError as error:
        raise _unreadable(spec, error) from None


def _of_program(spec: JobSpec) -> dict[str, str]:
    """On local it runs where its folder is, which may hold what it writes: the launcher gives one digest to all."""
    if given := os.environ.get(environment.CODE_SHA256):
        return {"code": given}
    return code.digests(spec) if spec.code else {}


def digest(spec: JobSpec) -> str:
    """Combines `file_digests` into one SHA-256; for a single file its own.

    Raises:
        UserError: as `file_digests`.
    """
    return workload_file.combined(file_digests(spec))


def require_unchanged(spec: JobSpec, began_with: Mapping[str, str]) -> None:
    """Checks that the files are unchanged since `file_digests` returned `began_with`, at the start of this task.

    Raises:
        UserError: names the files that have changed.
    """
    try:
        changed = _changed_code(spec, began_with) if spec.code else workload_file.changed(file_of(spec), began_with)
    except OSError as error:
        raise _unreadable(spec, error) from None
    if changed:
        raise UserError(
            f"workload: {', '.join(changed)} changed while the job ran, and all of it must train with the same code; "
            "start the job again, with the change or without it"
        )


def _changed_code(spec: JobSpec, before: Mapping[str, str]) -> list[str]:
    try:
        now = file_digests(spec)
    except UserError as error:
        raise UserError(f"{error}; it changed while the job ran") from None
    return [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]


def _unreadable(spec: JobSpec, error: OSError) -> UserError:
    return UserError(f"workload: {spec.workload}: cannot be read: {error.strerror}")
