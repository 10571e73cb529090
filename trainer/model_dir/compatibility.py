"""Settings that affect the result of a job. A checkpoint or result with other values belongs to another job.

All other settings may change before a job is resumed: steps (upwards), logging, deadlines, images, and the number of
tasks that are not in sync: ps, their workers, the evaluator.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Container, Mapping
from pathlib import Path
from typing import BinaryIO

from trainer.job.derived import batch_sizes, learning_rate, replicas_in_sync
from trainer.job.errors import UserError
from trainer.job.names import TaskType
from trainer.job.spec import JobSpec
from trainer.model_dir import init_files

MAY_CHANGE_UNDERWAY = ("workload_sha256", "train.learning_rate")
"""A job may resume with a corrected workload file, if the variables still fit, and with another rate. The result then
has a warning."""
_IMPLIED: dict[str, object] = {
    "settings": {}, "api": "loop", "communication.weights": "float32",
    "communication.every": 1, "communication.warmup_steps": 0, "communication.outer": None,
}  # fmt: skip
"""Defaults for files of earlier versions, which lack these keys. Other missing values are not compared."""


def key(spec: JobSpec, counts: dict[TaskType, int], digest: str | None) -> dict[str, object]:
    """Settings that affect the result, by their names in messages. Reads the user's .npz file, if any.

    An unknown value is None.

    Args:
        digest: of the workload as this process loaded it, or found it at its start; later edits do not change it.
    """
    if spec.program:
        programs = {t: spec.program_of(t) for t in counts}
        of_program: dict[str, object] = {
            "program": programs,
            "code_sha256": digest,
            "strategy": spec.strategy,
            "tasks": dict(counts),
        }
        if not spec.code:  # the image has it
            of_program["image"] = {t: spec.image_of(t) for t in counts}
        return {**of_program, "env": {t: spec.env_of(t) for t in counts}}
    of_any = {
        "workload": Path(spec.workload).name,
        # For built-in workloads the name is enough: another version of trainer is not another job.
        "workload_sha256": digest if spec.workload.endswith(".py") else None,
        "settings": spec.settings,
        "strategy": spec.strategy,
    }
    if not spec.traits.trains:
        return {**of_any, "tasks.worker": counts.get("worker")}
    train = spec.train
    return {
        **of_any,
        "api": spec.api,
        "dataset": spec.dataset,
        "dataset_sha256": _dataset_sha256(spec.dataset),
        **({"init_from_sha256": _init_sha256(spec)} if spec.init_from else {}),
        "replicas in sync": replicas_in_sync(spec, counts),
        "global batch size": batch_sizes(spec, counts)[0],
        "train.optimizer": train.optimizer,
        "train.learning_rate": learning_rate(spec, counts),
        "train.seed": train.seed,
        "train.deterministic": train.deterministic,
        "train.mixed_precision": train.mixed_precision,
        "communication.gradients": spec.communication.gradients,
        **({"communication.rank": spec.communication.rank} if spec.communication.gradients == "powersgd" else {}),
        "communication.weights": spec.communication.weights,
        "communication.every": spec.communication.every,
        "communication.warmup_steps": spec.communication.warmup_steps,
        "communication.outer": spec.communication.outer and spec.communication.outer.model_dump(),
    }


def differences(
    saved: Mapping[str, object], wanted: Mapping[str, object], what: str, ignored: Container[str] = ()
) -> list[str]:
    """One phrase for each value of the key saved in `what` that differs from the current one."""
    saved = {**_IMPLIED, **saved}
    return [
        f"{name}: {what} {_shown(name, saved[name])}, now {_shown(name, value)}"
        for name, value in wanted.items()
        if name not in ignored and name in saved and saved[name] != value and not _unknown(name, saved[name], value)
    ]


def _unknown(name: str, *values: object) -> bool:
    return name.endswith("_sha256") and None in values


def _shown(name: str, value: object) -> str:
    return f"{str(value)[:12]}..." if name.endswith("_sha256") else repr(value)


def _dataset_sha256(dataset: str | None) -> str | None:
    # Named datasets are verified when they are loaded.
    if dataset is None or not dataset.endswith(".npz"):
        return None
    try:
        about = Path(dataset).stat()
        return _sha256(dataset, about.st_size, about.st_mtime_ns)
    except OSError:
        return None


def _init_sha256(spec: JobSpec) -> str | None:
    """SHA-256 of the files that init_from reads. None if they are gone, or not on this machine: the chief alone reads
    them."""
    try:
        files = init_files.source(str(init_files.path_of(spec))).files
        stats = [(str(path), path.stat()) for path in files]
    except (UserError, OSError):
        return None
    digests = [_sha256(path, stat.st_size, stat.st_mtime_ns) for path, stat in stats]
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


@functools.lru_cache(maxsize=8)
def _sha256(path: str, _size: int, _changed: int) -> str:
    with Path(path).open("rb") as file:
        return sha256(file)


def sha256(file: BinaryIO) -> str:
    """SHA-256 of the rest of the file."""
    sha = hashlib.sha256()
    while chunk := file.read(1 << 20):
        sha.update(chunk)
    return sha.hexdigest()
