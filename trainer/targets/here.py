"""What a spec needs of the machine that its job, or its containers, run on."""

from __future__ import annotations

from pathlib import Path

from trainer.job import data
from trainer.job.errors import UserError
from trainer.job.messages import RELATIVE
from trainer.job.spec import JobSpec
from trainer.model_dir import init_files


def require(spec: JobSpec) -> None:
    """Checks the folders of data, and the file of init_from.

    Raises:
        UserError: names what is missing.
    """
    data.require_here(spec.data)
    init_files.require_here(spec)


def require_dataset(spec: JobSpec) -> None:
    """Checks the .npz file of `dataset`; not for compose, whose files may be rendered for another machine.

    Raises:
        UserError: it is not on this machine.
    """
    if not (spec.dataset and spec.dataset.endswith(".npz")):
        return
    try:
        problem = "" if Path(spec.dataset).is_file() else "no such file on this machine"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    if problem:
        raise UserError(f"dataset: {spec.dataset!r}: {problem} ({RELATIVE})")


def require_named(spec: JobSpec) -> None:
    """As `require`, but data that only pods find may have no folder here."""
    require_dataset(spec)
    data.require_here({name: each for name, each in spec.data.items() if each.path})
    if (given := spec.init_from) and (given.data is None or spec.data[given.data].path):
        init_files.require_here(spec)
