"""`init_from` of a spec: the values with which a new job begins, read from a model that was trained before.

Only data is read, never code: of a .keras file its weights, of a SavedModel its variables.
"""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

import h5py
import keras
import ml_dtypes
import numpy as np
import numpy.typing as npt
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.model_dir import checkpoint
from trainer.model_dir.init_files import OLD_H5, Source, path_of, source
from trainer.training.model.state import TrainState
from trainer.training.private import keras_private, tensorflow_private
from trainer.training.task import TrainingTask
from trainer.training.weights.weight_names import Name, Pairs, Slot, pair, snake_case
from trainer.workloads.types import Model, Tensor, Variable

Array = checkpoint.Array
Weights = list[tuple[Name, Array]]
Groups = dict[str, tuple[str | None, Mapping[str, Tensor]]]
"""Tensors by name in each layer, and the layer's class, as `keras_private.weight_groups` gives them."""
NAMES_SHOWN = 6
_SEEDS = "seed_generator"
"""States of random generators: they follow from train.seed."""


def initial_values(job: TrainingTask, state: TrainState) -> tuple[checkpoint.Values, str]:
    """The values of the model's variables that the file of init_from has, and a report of what it lacks.

    Raises:
        UserError: it cannot be read, or none of its variables fits.
    """
    if not isinstance(state.model, keras.Model):
        raise UserError("init_from: is for models of Keras 3; load the weights in model()")
    path = path_of(job.spec)
    assert path is not None
    there = source(path)
    try:
        found_there, note = _of_checkpoint(there) if there.kind == "checkpoint" else (_READERS[there.kind](there), "")
        weights = [each for each in found_there if _SEEDS not in "/".join(each[0])]
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"init_from: {path}: cannot be read: {type(error).__name__}: {' '.join(str(error).split())}"
        ) from None
    named = _NAMES[there.kind](state.model)
    model = [(name, key, v) for name, key, v in named if _SEEDS not in "/".join(name)]
    ours, theirs = [_slot(name, v) for name, _, v in model], [_slot(name, array) for name, array in weights]
    pairs = pair(ours, theirs, [snake_case(type(layer).__name__) for layer in keras_private.all_layers(state.model)])
    values = {
        model[i][1]: _cast(weights[j][1], model[i][2]) for i, j in pairs.positions.items() if ours[i].fits(theirs[j])
    }
    if not values:
        raise UserError(
            f"init_from: {path}: none of its {len(theirs)} variables has the name and shape of one of the model's "
            f"{len(ours)}: there {_listed(theirs)}; in the model {_listed(ours)}"
        )
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


def _slot(name: Name, value: Variable | Array) -> Slot:
    dtype = keras.backend.standardize_dtype(value.dtype) if not isinstance(value, np.ndarray) else value.dtype
    return Slot(name, tuple(value.shape), _kind(dtype))


def _kind(dtype: npt.DTypeLike) -> str:
    return "f" if dtype == ml_dtypes.bfloat16 else np.dtype(dtype).kind


def _cast(array: Array, variable: Variable) -> Array:
    return array.astype(keras.backend.standardize_dtype(variable.dtype))


# What is in the file. -----------------------------------------------------------------------------


def _of_h5(there: Source) -> Weights:
    with there.files[0].open("rb") as file:
        return _read_h5(file)


def _of_keras(there: Source) -> Weights:
    with zipfile.ZipFile(there.files[0]) as archive:
        return _read_h5(io.BytesIO(archive.read("model.weights.h5")))


def _read_h5(file: BinaryIO) -> Weights:
    groups: Groups = {}
    with h5py.File(file, "r") as archive:

        def visit(path: str, item: Tensor) -> None:
            if isinstance(item, h5py.Group) and path.rpartition("/")[2] == "vars":
                groups[path.rpartition("/")[0]] = (item.attrs.get("name"), item)

        archive.visititems(visit)
        if not groups and {"layer_names", "model_weights"} & {*archive.attrs, *archive}:
            raise UserError(f"init_from: {file.name}: an .h5 file {OLD_H5}")
        kept = {path: group for path, group in groups.items() if path.partition("/")[0] != "optimizer"}
        return [(name, _of_dataset(item)) for name, item in _named(kept)]


def _of_dataset(item: Tensor) -> Array:
    array = np.asarray(item)
    return (
        array.view(ml_dtypes.bfloat16) if item.attrs.get("dtype") == "bfloat16" and array.dtype.kind == "V" else array
    )


def _of_saved_model(there: Source) -> Weights:
    reader = tf.train.load_checkpoint(str(there.folder / "variables" / "variables"))
    names = tensorflow_private.names_in_graph(reader.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH"))
    # Keras lists all variables a second time, in no order, as _all_variables (keras/src/export/saved_model.py).
    listed = [key for key in names if key.startswith("variables/")] or list(names)
    weights = [(tuple(names[key].split("/")), reader.get_tensor(key)) for key in sorted(listed, key=_natural)]
    return [(name, array) for name, array in weights if isinstance(array, np.ndarray)]


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


_READERS: dict[str, Callable[[Source], Weights]] = {
    "keras": _of_keras,
    "h5": _of_h5,
    "saved_model": _of_saved_model,
}


# What the model has. ------------------------------------------------------------------------------


Named = list[tuple[Name, str, Variable]]
"""Name, name in a checkpoint, variable."""


def _keys(model: Model) -> list[tuple[str, Variable]]:
    """Returns variables with their names in a checkpoint, as TrainState.variables does."""
    return [(f"model.{i:03d}", v) for i, v in enumerate(model.variables)]


def _names_in_h5(model: Model) -> Named:
    keys = {id(v): key for key, v in _keys(model)}
    groups = keras_private.weight_groups(model)
    return [(name, keys[id(v)], v) for name, v in _named(groups) if id(v) in keys]


_NAMES: dict[str, Callable[[Model], Named]] = {
    "keras": _names_in_h5,
    "h5": _names_in_h5,
    "saved_model": lambda model: [(tuple(v.value.name.partition(":")[0].split("/")), k, v) for k, v in _keys(model)],
    "checkpoint": lambda model: [(tuple(v.path.split("/")), key, v) for key, v in _keys(model)],
}


def _named(groups: Groups) -> Iterator[tuple[Name, Tensor]]:
    """The variables in Keras' groups of weights, by the names of their layers.

    The group of a layer in a list, as in a Functional model, is called after the layer's class, and has its name as an
    attribute; that of a layer in an attribute is called after the attribute. Lists have no group.
    """
    for path in sorted(groups, key=_natural):
        parts = path.split("/") if path else []
        names: list[str] = []
        parent = ""
        for part in parts:
            here = f"{parent}/{part}" if parent else part
            if here in groups:
                name = groups[here][0] if parent and parent not in groups else None
                names.append(str(name or part))
            parent = here
        for key in sorted(groups[path][1], key=_natural):
            yield (*names, key), groups[path][1][key]


def _natural(path: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path)]
