"""What a path of `init_from` holds, and the files that are read of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainer.job.errors import UserError
from trainer.job.spec import JobSpec
from trainer.model_dir import layout
from trainer.model_dir.files import read_json, write_json

KINDS = "a .keras or .weights.h5 file, the folder of a SavedModel, a checkpoint of trainer, or a model_dir"

OLD_H5 = (
    "of Keras 2 is not read: load it into the same model by load_weights, and save that by "
    'save_weights("NAME.weights.h5")'
)


@dataclass(frozen=True)
class Source:
    kind: str
    folder: Path
    files: tuple[Path, ...]
    """All files that are read."""


def path_of(spec: JobSpec) -> str | None:
    """The path of init_from in a task, in whose spec the paths of data are those of its target."""
    begin = spec.init_from
    if begin is None:
        return None
    if begin.data is None:
        return begin.path
    return str(Path(spec.data[begin.data].path or "") / begin.path)


def require_here(spec: JobSpec) -> None:
    """Checks that the file is on this machine, unless the job has a checkpoint: then it is not read.

    Raises:
        UserError: it is not, or has no known format.
    """
    begun = any(layout.checkpoints(spec.directory).glob("step-*"))
    if not begun and (path := path_of(spec)) is not None:
        source(path)


def source(path: str) -> Source:
    """Recognises the format.

    Raises:
        UserError: there is nothing, or nothing of a known format, or it cannot be read.
    """
    try:
        return _source(path)
    except OSError as error:
        raise UserError(f"init_from: {path}: cannot be read: {error.strerror}") from None


def _source(path: str) -> Source:
    model = Path(path)
    if model.is_file():
        kind = "keras" if path.endswith(".keras") else "h5" if path.endswith(".weights.h5") else None
        if kind is None:
            old = f"; an .h5 file {OLD_H5}" if path.endswith((".h5", ".hdf5")) else ""
            raise UserError(f"init_from: {path}: must be {KINDS}{old}")
        return Source(kind, model.parent, (model,))
    if (model / "saved_model.pb").is_file():
        return Source("saved_model", model, tuple(sorted((model / "variables").glob("variables.*"))))
    numbered = {path.name.removeprefix("step-"): path for path in layout.checkpoints(model).glob("step-*")}
    if steps := [int(number) for number in numbered if number.isdecimal()]:
        model = layout.checkpoints(model) / f"step-{max(steps):08d}"
    if (model / "meta.json").is_file():
        return Source("checkpoint", model, (model / "variables.npz",))
    if model.is_dir():
        raise UserError(f"init_from: {path}: must be {KINDS}; this folder is none of them")
    raise UserError(f"init_from: {path}: there is no such file or folder")


def write_report(model_dir: str, report: str) -> None:
    """Keeps what a job began with for its result, which a later start may write.

    Raises:
        UserError: model_dir is not writable.
    """
    layout.make_own(model_dir)
    write_json(layout.init_report(model_dir), {"report": report})


def read_report(spec: JobSpec) -> str | None:
    report = read_json(layout.init_report(spec.directory)).get("report")
    return report.removeprefix("init_from: ") if spec.init_from is not None and isinstance(report, str) else None
