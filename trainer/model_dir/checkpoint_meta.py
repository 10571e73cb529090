"""meta.json of a checkpoint: step, compatibility key, the SHA-256 of variables.npz, and whether it fits a job."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TypedDict, TypeGuard

from typing_extensions import NotRequired

from trainer.job.errors import UserError
from trainer.job.spec import JobSpec
from trainer.model_dir import compatibility, disk

FORMAT = 1
"""The version of a checkpoint's files. It increases when an earlier version of trainer could not read them any more."""


UNTRACKED = "untracked."
"""Begins the names of variables that a step uses and that neither the model nor an optimizer has."""


class Variable(TypedDict):
    """What a variable of a checkpoint is."""

    path: str
    shape: list[int]
    dtype: str
    average: NotRequired[str]
    """The name of the variable that has its average: with use_ema the export has that value."""


class CallbackState(TypedDict):
    """The state of a callback."""

    kind: str
    """Name of the callback's class."""
    state: object
    """The state as JSON, in which arrays are replaced by their names in variables.npz."""


class Epochs(TypedDict):
    """Where training is in its epochs, and the state of its callbacks."""

    number: int
    """Number of the present epoch, from 0."""
    done: int
    """Steps of the present epoch that were made. If that is all of them, the task was asked to stop before the epoch
    ended."""
    begun: bool
    """Whether on_epoch_begin of the present epoch was called."""
    count: float
    """Number of replicas' steps whose figures are added up in variables.npz."""
    steps: int
    """Steps of a whole epoch."""
    figures: list[str]
    """Names of the figures that are added up."""
    total: int
    """The step at which the job was to end."""
    over: str | None
    """Why a callback has ended the training; null if none has."""
    callbacks: list[CallbackState]


class BestMetric(TypedDict):
    """The metric by which a checkpoint is the best, and its value."""

    metric: str
    value: float


class Meta(TypedDict):
    """meta.json."""

    step: int
    compatibility_key: NotRequired[dict[str, object]]
    """Settings that affect the result."""
    workload_changed_after: NotRequired[list[int]]
    variables: NotRequired[dict[str, Variable]]
    """The variables, by name in variables.npz."""
    rates: NotRequired[dict[str, float | None]]
    """The learning rate that code or spec gave each optimizer, by its name; null of a schedule. The rate at this step
    is among the variables."""
    epochs: NotRequired[Epochs]
    """Epochs and callbacks, in a job that has callbacks."""
    best: NotRequired[BestMetric]
    """Why this checkpoint is the best, if it is one in best/."""
    sha256: NotRequired[str]


def read(path: Path) -> Meta | None:
    """meta.json of the checkpoint at path; None if it is missing or damaged.

    Raises:
        UserError: a newer version of trainer wrote it. It must not be taken for a damaged one, which is set aside.
    """
    try:
        meta = json.loads(disk.read(path / "meta.json"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(meta, dict):
        return None
    if isinstance(version := meta.get("format"), int) and version > FORMAT:
        raise UserError(
            f"model_dir: {path}: cannot be read: format: {version}: this trainer reads formats up to {FORMAT}; use the "
            "version of trainer that wrote it, or choose another model_dir"
        )
    if "fits" in meta:  # its name until version 0.2
        meta["compatibility_key"] = meta.pop("fits")
    return meta if _valid(meta) else None


def differences(
    meta: Meta,
    spec: JobSpec,
    key: Mapping[str, object],
    variables: Mapping[str, Variable] | None = None,
    total: int | None = None,
) -> list[str]:
    """Lists how spec and model differ from the checkpoint; empty if they fit.

    Args:
        key: the spec's compatibility key.
        total: steps of the whole job, once the data and hence the length of an epoch are known.
    """
    ignored = compatibility.MAY_CHANGE_UNDERWAY
    different = compatibility.differences(meta.get("compatibility_key", {}), key, "checkpoint", ignored)
    total = spec.train.steps if total is None else total
    if total is not None and meta["step"] > total:
        asked = f"train.epochs: {spec.train.epochs}" if spec.train.epochs is not None else "train.steps"
        different.append(f"{asked}: the checkpoint is at step {meta['step']}, this job ends at step {total}")
    if variables is not None:
        different += _variable_differences(meta.get("variables", {}), variables)
    return different


def refusal(meta: Meta, model_dir: str, different: list[str]) -> UserError:
    return UserError(
        f"model_dir: {model_dir}: its checkpoint of step {meta['step']} does not fit this spec: "
        f"{'; '.join(different)}; undo the change, or choose another model_dir"
    )


_USES = {"accumulator", "average", "grad", "gradient", "linear", "momentum", "norm", "var", "velocity"}
"""What Keras' optimizers keep in variables of a weight's shape (keras/src/optimizers): SGD and Adagrad have equal
shapes, and so have Adam and Adamax."""


def _variable_differences(saved: Mapping[str, Variable], wanted: Mapping[str, Variable]) -> list[str]:
    different = []
    for name in dict.fromkeys([*saved, *wanted]):
        old, new = saved.get(name), wanted.get(name)
        if old and not new and name.startswith(UNTRACKED):
            continue  # the code has it no more
        if old is None or new is None:
            where, only = ("checkpoint", old) if old else ("model", new)
            different.append(f"variable {only['path'] if only else name} is only in the {where}")
        elif (list(old["shape"]), old["dtype"]) != (list(new["shape"]), new["dtype"]):
            was, now = f"{old['dtype']}{list(old['shape'])}", f"{new['dtype']}{list(new['shape'])}"
            different.append(f"variable {new['path']}: checkpoint {was}, model {now}")
        elif name.startswith("optimizer") and len({_use(old), _use(new)} & _USES) == 2:
            different.append(f"variable {new['path']}: the checkpoint has {_use(old)} there, of another optimizer")
    return different[:5] + ([f"and {len(different) - 5} more"] if len(different) > 5 else [])


def _use(variable: Variable) -> str:
    """What an optimizer keeps in a variable: the last word of its path."""
    return re.split("[/_]", variable["path"])[-1]


def _valid(meta: dict[str, object]) -> TypeGuard[Meta]:
    step, variables = meta.get("step"), meta.get("variables", {})
    described = isinstance(variables, dict) and all(
        isinstance(each, dict)
        and isinstance(each.get("shape"), list)
        and isinstance(each.get("dtype"), str)
        and isinstance(each.get("path"), str)
        for each in variables.values()
    )
    numbered = isinstance(step, int) and not isinstance(step, bool) and 0 <= step < 2**63
    changes = meta.get("workload_changed_after", [])
    listed = isinstance(changes, list) and all(isinstance(each, int) for each in changes)
    return numbered and described and listed and isinstance(meta.get("compatibility_key", {}), dict)
