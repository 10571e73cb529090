"""Checkpoints: complete or absent, verified when read. NumPy is imported only to write and read the values, so a
supervisor can inspect checkpoints without it.

    checkpoints/step-00000500/variables.npz   every variable of model and optimizer, by position
                              meta.json       see checkpoint_meta.py

tf.train.Checkpoint would write a ps's variables on the ps, and SaveV2 has no checksum over the whole.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from trainer.job.errors import UserError
from trainer.model_dir import arrays as npz
from trainer.model_dir import checkpoint_meta, compatibility, disk, layout, lease
from trainer.model_dir.arrays import DamagedError
from trainer.model_dir.checkpoint_meta import Epochs, Meta
from trainer.model_dir.files import OWN
from trainer.model_dir.regular import regular

Array: TypeAlias = npz.Array
Values: TypeAlias = dict[str, Array]
Arrays: TypeAlias = Iterator[tuple[str, Array]]
ARRAYS = "variables.npz"
CALLBACKS = "callbacks."
"""Prefix of the arrays that belong to epochs and callbacks, not to variables."""


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint on disk."""

    path: Path
    step: int
    meta: Meta


Take: TypeAlias = Callable[[Checkpoint, Arrays], None]
"""A function that takes the arrays of a checkpoint, by name, as they are read; the iterator may raise DamagedError at
its end."""


def folder(model_dir: str | Path) -> Path:
    return layout.checkpoints(model_dir)


def name(step: int) -> str:
    return f"step-{step:08d}"


def written(model_dir: str | Path, step: int) -> tuple[float, int] | None:
    """When the checkpoint of this step was complete, in seconds since 1970, and its bytes; None if it is gone."""
    try:
        files = [file.stat() for file in (folder(model_dir) / name(step)).iterdir()]
    except OSError:
        return None
    if not files:  # it is being removed: first its files, then the folder
        return None
    return max(file.st_mtime for file in files), sum(file.st_size for file in files)


def save(model_dir: str | Path, step: int, values: Mapping[str, Array], meta: Mapping[str, object]) -> Path:
    """Writes a checkpoint of values that are in memory anyway; see `write`."""
    return write(model_dir, step, values.items(), sum(value.nbytes for value in values.values()), meta)


def write(
    model_dir: str | Path, step: int, arrays: Iterable[tuple[str, Array]], size: int, meta: Mapping[str, object]
) -> Path:
    """Writes a checkpoint under a temporary name, syncs and renames it. An intact one of the same step is kept.

    Args:
        arrays: by name. Each is written before the next is asked for.
        size: bytes of all of them, for the message if they cannot be written.

    Raises:
        UserError: the disk is full or the folder not writable; no partial file remains.
        TrainerError: what `arrays` raises; Exit.REPLACED, if another chief has taken this one's place.
    """
    lease.require_own()
    target = folder(model_dir) / name(step)
    if verify(target) is not None:
        return target
    temporary = folder(model_dir) / f".tmp-{target.name}-{OWN}"
    try:
        shutil.rmtree(target, ignore_errors=True)
        temporary.mkdir(parents=True, exist_ok=True)
        with (temporary / ARRAYS).open("wb") as file:
            digest = npz.write(file, arrays)
            file.flush()
            _sync(file.fileno())
        full = {"format": checkpoint_meta.FORMAT, "step": step, "sha256": digest, **meta}
        with (temporary / "meta.json").open("w") as text:
            json.dump(full, text, indent=1)
            text.flush()
            _sync(text.fileno())
        lease.require_own()
        temporary.rename(target)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)
        lease.require_own()  # another chief has perhaps removed the files
        raise UserError(
            f"model_dir: {target}: the checkpoint of step {step} ({size / 1e6:.1f} MB) cannot be written: "
            f"{error.strerror}; make room or choose another model_dir; earlier checkpoints are intact"
        ) from None
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    _sync_folder(target.parent)
    return target


def prune(model_dir: str | Path, keep: int) -> None:
    """Deletes all but the newest `keep` checkpoints and the newest damaged one, and files of interrupted saves.

    Raises:
        TrainerError: Exit.REPLACED, if another chief has taken this one's place: the files are perhaps its own.
    """
    lease.require_own()
    for path in _complete(model_dir)[:-keep]:
        shutil.rmtree(path, ignore_errors=True)
    for path in sorted(folder(model_dir).glob(".damaged-*"), key=lambda path: (len(path.name), path.name))[:-1]:
        shutil.rmtree(path, ignore_errors=True)
    remove_interrupted(model_dir)


def remove_interrupted(model_dir: str | Path) -> None:
    """Deletes what tasks have left that were killed while they wrote a checkpoint."""
    for path in folder(model_dir).glob(".tmp-*"):
        if not path.name.endswith(OWN):
            shutil.rmtree(path, ignore_errors=True)


def steps(model_dir: str | Path) -> list[int]:
    """Steps of the complete checkpoints, oldest first. They are verified only when read."""
    return [int(path.name.removeprefix("step-")) for path in _complete(model_dir)]


def restore(
    model_dir: str | Path, fits: Callable[[Meta], None], take: Take, *, reuse: bool = False
) -> tuple[Checkpoint | None, list[str]]:
    """Gives `take` the newest intact checkpoint; returns it, and one line for each newer one that is damaged.

    For the task that writes checkpoints: it renames damaged ones. Otherwise `prune` would count them among those to
    keep, and delete intact ones. Most damage shows only at the end of the file, when `take` has had the arrays: then it
    gets those of the next older checkpoint. The oldest is verified before, so that in its place the model's own values
    are still there.

    Args:
        fits: raises what is to be raised if a checkpoint does not fit.
        reuse: whether an array may lose its values when the next one is asked for, see arrays.read.

    Raises:
        UserError: all are damaged, and `take` has had arrays; or a newer version of trainer wrote one.
    """
    broken: list[str] = []
    taken = False
    paths = _complete(model_dir)
    for path in reversed(paths):
        candidate = verify(path) if path == paths[0] else _described(path)
        if candidate is not None:
            fits(candidate.meta)
            try:
                take(candidate, _read(candidate, reuse=reuse))
                return candidate, [f"{line}; using that of step {candidate.step}" for line in broken]
            except DamagedError as error:
                taken = taken or error.late
        broken.append(f"{path} is damaged (its SHA-256 differs from meta.json){_set_aside(path)}")
    if taken:
        raise UserError("; ".join([*broken, "no intact checkpoint is left; run the job again, from the beginning"]))
    return None, [f"{line}; no intact checkpoint is left, so training starts from the beginning" for line in broken]


def _set_aside(path: Path) -> str:
    aside = path.with_name(f".damaged-{path.name}")
    try:
        shutil.rmtree(aside, ignore_errors=True)  # an earlier damaged one of the same step
        path.rename(aside)
    except OSError as error:
        return f", and could not be renamed ({error.strerror})"
    return f", and was renamed to {aside.name}"


def newest(model_dir: str | Path) -> Checkpoint | None:
    """The newest checkpoint according to its meta.json; its values are not verified, and may be damaged."""
    return next((each for path in reversed(_complete(model_dir)) if (each := _described(path))), None)


def workload_changes(model_dir: str | Path, key: Mapping[str, object]) -> list[int]:
    """Steps after which training continued with a changed workload file, up to the newest checkpoint.

    Checkpoints record them because state.json is removed after a failure, which is when users correct a file.
    """
    last = newest(model_dir)
    if last is None:
        return []
    known = last.meta.get("workload_changed_after", [])
    of_code = {name: value for name, value in key.items() if name != "train.learning_rate"}
    changed = compatibility.differences(last.meta.get("compatibility_key", {}), of_code, "checkpoint")
    return [*known, last.step] if changed else known


def verify(path: Path) -> Checkpoint | None:
    """The checkpoint at path, or None if it is damaged."""
    described = _described(path)
    try:
        intact = described is not None and _sha256_of(path / ARRAYS) == described.meta.get("sha256")
    except OSError:
        return None
    return described if intact else None


def load(path: Path) -> tuple[Checkpoint, Values] | None:
    """The checkpoint at path and its values; None if it is damaged, or is deleted meanwhile.

    For a task that does not write checkpoints: the chief may prune at the same time. The values are verified and read
    from one open file.
    """
    if (described := _described(path)) is None:
        return None
    try:
        return described, dict(_read(described))
    except DamagedError:
        return None


def _described(path: Path) -> Checkpoint | None:
    """The checkpoint at path according to its meta.json."""
    meta = checkpoint_meta.read(path)
    return None if meta is None else Checkpoint(path, meta["step"], meta)


def read_epochs(model_dir: str | Path, step: int) -> tuple[Epochs, Values] | None:
    """What the checkpoint of a step keeps for epochs and callbacks, with its arrays; None if it keeps nothing."""
    import numpy as np

    path = folder(model_dir) / name(step)
    meta = checkpoint_meta.read(path)
    if meta is None or "epochs" not in meta:
        return None
    with np.load(path / ARRAYS, allow_pickle=False) as archive:
        kept = [each for each in archive.files if each.startswith(CALLBACKS)]
        return meta["epochs"], {each: archive[each] for each in kept}


def _complete(model_dir: str | Path) -> list[Path]:
    # Sorted by number: names beyond 99,999,999 are longer.
    place = folder(model_dir)
    steps = (each.removeprefix("step-") for each in disk.names(place) if each.startswith("step-"))
    return [place / f"step-{step}" for step in sorted(filter(str.isdecimal, steps), key=int)]


def _read(checkpoint: Checkpoint, *, reuse: bool = False) -> Arrays:
    dtypes = {name: each["dtype"] for name, each in checkpoint.meta.get("variables", {}).items()}
    arrays = npz.read(checkpoint.path / ARRAYS, checkpoint.meta.get("sha256"), reuse=reuse)
    return ((name, typed(array, dtypes.get(name))) for name, array in arrays)


def typed(array: Array, dtype: str | None) -> Array:
    """An array of a file with its type."""
    # NumPy has no bfloat16 of its own: a file keeps the bits of such an array, but not its type.
    if array.dtype.kind != "V" or dtype is None:
        return array
    import ml_dtypes

    return array.view(getattr(ml_dtypes, dtype))


def _sha256_of(path: Path) -> str:
    with open(path, "rb", opener=regular) as file:
        return compatibility.sha256(file)


def _sync(descriptor: int) -> None:
    os.fsync(descriptor)


def _sync_folder(path: Path) -> None:
    # Some network file systems refuse to fsync a folder; the rename is then as durable as they make it.
    descriptor = os.open(path, os.O_RDONLY)
    with contextlib.suppress(OSError):
        os.fsync(descriptor)
    os.close(descriptor)
