"""`init_from` of a spec: the values with which a new job begins, read from a model that was trained before.

Only data is read, never code: of a .keras file its weights, of a SavedModel its variables. Files that trainer has not
written are read by another process.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import keras
import ml_dtypes
import numpy as np
import numpy.typing as npt

from trainer import host
from trainer.job.errors import UserError
from trainer.model_dir import checkpoint
from trainer.model_dir.files import json_object
from trainer.model_dir.init_files import Source, path_of, source
from trainer.training.model.state import TrainState
from trainer.training.private import keras_private
from trainer.training.task import TrainingTask
from trainer.training.weights import init_reader
from trainer.training.weights.weight_names import Name, Pairs, Slot, pair, snake_case
from trainer.workloads.types import Model, Tensor, Variable

Array = checkpoint.Array
Weights = list[tuple[Name, Array]]
NAMES_SHOWN = 6
_SEEDS = "seed_generator"
"""States of random generators: they follow from train.seed."""
_NEEDED = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TMPDIR", "LANG", "SSL_CERT_FILE")
_ENVIRON = {
    "HDF5_PLUGIN_PRELOAD": "::",  # no plugins, whatever the file asks for (H5PLpublic.h)
    "HDF5_USE_FILE_LOCKING": "FALSE",
    "OPENBLAS_NUM_THREADS": "1",
    "TF_CPP_MIN_LOG_LEVEL": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
    "KERAS_BACKEND": "tensorflow",
}
"""The environment of the process that reads the file: without the variables of the job, of which some are secrets."""
_SILENCE_SECONDS = 300.0
"""How long nothing may come from that process: a network disk may be slow."""
_LONGEST_ANSWER = 1 << 28


def initial_values(job: TrainingTask, state: TrainState) -> tuple[checkpoint.Values, str]:
    """The values of the model's variables that the file of init_from has, and a report of what it lacks.

    Raises:
        UserError: it cannot be read, or none of its variables fits.
    """
    if not isinstance(state.model, keras.Model):
        raise UserError("init_from: is for models of Keras 3; load the weights in model()")
    path = path_of(job.spec)
    assert path is not None
    there, file, note = source(path), None, ""
    try:
        if there.kind == "checkpoint":
            found, note = _of_checkpoint(there)
            variables = [_There(name, array.shape, array.dtype) for name, array in found]
        else:
            file = _File(path)
            variables = file.variables
        named = _NAMES[there.kind](state.model)
        model = [(name, key, v) for name, key, v in named if _SEEDS not in "/".join(name)]
        numbers = [i for i, each in enumerate(variables) if _SEEDS not in "/".join(each.name)]
        ours = [_slot(name, v.shape, v.dtype) for name, _, v in model]
        theirs = [_slot(each.name, each.shape, each.dtype) for each in (variables[i] for i in numbers)]
        pairs = pair(ours, theirs, [snake_case(type(each).__name__) for each in keras_private.all_layers(state.model)])
        # Only values whose declared shapes are those of the model are read.
        wanted = {i: numbers[j] for i, j in pairs.positions.items() if ours[i].fits(theirs[j])}
        if not wanted:
            raise UserError(
                f"init_from: {path}: none of its {len(theirs)} variables has the name and shape of one of the model's "
                f"{len(ours)}: there {_listed(theirs)}; in the model {_listed(ours)}"
            )
        read = file.values(list(wanted.values())) if file else (found[j][1] for j in wanted.values())
        values = {model[i][1]: _cast(array, model[i][2]) for i, array in zip(wanted, read, strict=True)}
    except UserError:
        raise
    except Exception as error:
        why = str(error) if type(error) is ValueError else f"{type(error).__name__}: {error}"
        raise UserError(f"init_from: {path}: cannot be read: {' '.join(why.split())}") from None
    finally:
        if file:
            file.close()
    return values, f"init_from: {path}: {_report(ours, theirs, pairs)}{note}"


def _report(ours: list[Slot], theirs: list[Slot], pairs: Pairs) -> str:
    fitting = [i for i, j in pairs.positions.items() if ours[i].fits(theirs[j])]
    lacking = [slot for i, slot in enumerate(ours) if i not in pairs.positions]
    others = [(ours[i], theirs[j]) for i, j in sorted(pairs.positions.items()) if not ours[i].fits(theirs[j])]
    unused = [slot for j, slot in enumerate(theirs) if j not in pairs.positions.values()]
    parts = [f"{len(fitting)} of {len(ours)} variables" + (f", of {pairs.part}" if pairs.part else "")]
    if lacking:
        parts.append(f"not in the file: {_listed(lacking)}")
    if others:
        shown = [f"{_text(one)} (there {_form(other)}, here {_form(one)})" for one, other in others[:NAMES_SHOWN]]
        parts.append(f"of another shape or type: {_cut(shown, len(others))}")
    if unused:
        parts.append(f"only in the file: {_listed(unused)}")
    return "; ".join(parts)


def _listed(slots: list[Slot]) -> str:
    return _cut([_text(slot) for slot in slots[:NAMES_SHOWN]], len(slots))


def _cut(shown: list[str], count: int) -> str:
    return ", ".join(shown) + (f", and {count - len(shown)} more" if count > len(shown) else "")


def _text(slot: Slot) -> str:
    return "/".join(slot.name)


def _form(slot: Slot) -> str:
    return str(slot.shape) if slot.kind == "f" else f"{slot.kind}{slot.shape}"


def _slot(name: Name, shape: Sequence[int], dtype: object) -> Slot:
    known = dtype if isinstance(dtype, np.dtype) else keras.backend.standardize_dtype(dtype)
    return Slot(name, tuple(shape), _kind(known))


def _kind(dtype: npt.DTypeLike) -> str:
    return "f" if dtype == ml_dtypes.bfloat16 else np.dtype(dtype).kind


def _cast(array: Array, variable: Variable) -> Array:
    return array.astype(keras.backend.standardize_dtype(variable.dtype))


# What is in the file. -----------------------------------------------------------------------------


@dataclass(frozen=True)
class _There:
    """A variable of the file."""

    name: Name
    shape: tuple[int, ...]
    dtype: npt.DTypeLike


class _File:
    """The variables of a file, whose values another process reads (init_reader.py)."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._process = subprocess.Popen(
            host.command("trainer.training.weights.init_reader", path),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**_ENVIRON, **{name: os.environ[name] for name in _NEEDED if name in os.environ}},
        )
        try:
            answer = self._answer()
        except BaseException:
            self.close()
            raise
        if "variables" not in answer:
            self.close()
        if "refused" in answer:
            raise UserError(str(answer["refused"]))
        if "variables" not in answer:
            raise ValueError(answer.get("error"))
        self.variables = [
            _There(tuple(name), tuple(shape), init_reader.dtype_of(dtype)) for name, shape, dtype in answer["variables"]
        ]
        """In the order of the file."""

    def values(self, numbers: Sequence[int]) -> Iterator[Array]:
        """Those of variables, by their positions."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(list(numbers)).encode() + b"\n")
        self._process.stdin.close()
        for number in numbers:
            array = np.empty(self.variables[number].shape, self.variables[number].dtype)
            self._fill(array.reshape(-1).view(np.uint8).data)
            yield array

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _answer(self) -> dict[str, Tensor]:
        assert self._process.stdout is not None
        self._wait()
        line = self._process.stdout.readline(_LONGEST_ANSWER)
        return json_object(line) or {"error": self._end()}

    def _fill(self, flat: memoryview) -> None:
        assert self._process.stdout is not None
        done = 0
        while done < len(flat):
            self._wait()
            count = self._process.stdout.readinto1(flat[done:])  # type: ignore[attr-defined]
            if not count:
                raise ValueError(self._end())
            done += count

    def _wait(self) -> None:
        stdout = self._process.stdout
        assert stdout is not None
        if not stdout.peek(0) and not select.select([stdout], [], [], _SILENCE_SECONDS)[0]:  # type: ignore[attr-defined]
            raise ValueError(f"nothing came for {_SILENCE_SECONDS:g} s")

    def _end(self) -> str:
        self._process.kill()
        return f"the process that reads it ended: {self._process.wait()}; its memory is limited to what the model needs"


def _of_checkpoint(there: Source) -> tuple[Weights, str]:
    """Its weights, those that its job would export, and a note on them for the report."""
    loaded = checkpoint.load(there.folder)
    if loaded is None:
        raise UserError(f"init_from: {there.folder}: the checkpoint is damaged; name another one")
    newest, values = loaded
    model = {key: v for key, v in sorted(newest.meta.get("variables", {}).items()) if key.startswith("model.")}
    weights = [
        (tuple(v["path"].split("/")), values[v.get("average", key)]) for key, v in model.items() if key in values
    ]
    averaged = any("average" in v for v in model.values())
    return weights, "; with use_ema these are the averages, as in the export" if averaged else ""


# What the model has. ------------------------------------------------------------------------------


Named = list[tuple[Name, str, Variable]]
"""Name, name in a checkpoint, variable."""


def _keys(model: Model) -> list[tuple[str, Variable]]:
    """Returns variables with their names in a checkpoint, as TrainState.variables does."""
    return [(f"model.{i:03d}", v) for i, v in enumerate(model.variables)]


def _names_in_h5(model: Model) -> Named:
    keys = {id(v): key for key, v in _keys(model)}
    groups = keras_private.weight_groups(model)
    return [(name, keys[id(v)], v) for name, v in init_reader.named(groups) if id(v) in keys]


_NAMES: dict[str, Callable[[Model], Named]] = {
    "keras": _names_in_h5,
    "h5": _names_in_h5,
    "saved_model": lambda model: [(tuple(v.value.name.partition(":")[0].split("/")), k, v) for k, v in _keys(model)],
    "checkpoint": lambda model: [(tuple(v.path.split("/")), key, v) for key, v in _keys(model)],
}
