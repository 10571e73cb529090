"""The state of callbacks in a checkpoint: what get_state() of a callback gives, and attributes of Keras' own by name.

It is JSON beside the arrays of the checkpoint: nothing is pickled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.model_dir import checkpoint, checkpoint_meta
from trainer.training.callbacks import csv_files
from trainer.workloads.types import Callback

_SAVERS = ("best", "_current_epoch", "_batches_seen_since_last_saving", "_last_batch_seen")
OF_KERAS: dict[str, tuple[str, ...]] = {
    "CSVLogger": ("keys",),
    "EarlyStopping": ("best", "best_epoch", "best_weights", "stopped_epoch", "wait"),
    "History": ("epoch", "history"),
    "ModelCheckpoint": _SAVERS,
    "OrbaxCheckpoint": (*_SAVERS, "_total_batches_seen"),
    "ReduceLROnPlateau": ("best", "cooldown_counter", "wait"),
    "TensorBoard": ("_global_train_batch", "_global_test_batch", "_previous_epoch_iterations", "_epoch_start_time"),
}
"""The attributes of Keras' callbacks that are kept, by class. A class of Keras that is not here has no state."""
_KINDS = "numbers, text, arrays, or lists, tuples, sets or dicts of them"
_SERIES: dict[str, Callable[[Iterable[object]], object]] = {"list": list, "tuple": tuple, "set": set}
_USERS, _FILE_LENGTH = "get_state()", "length of the file"
"""Names, beside those of attributes, of what get_state() gives and of the bytes in a CSVLogger's file."""

Attributes = dict[str, object]
"""Values by name."""


@dataclass
class Saved:
    """Epochs and callbacks in a checkpoint."""

    epochs: checkpoint_meta.Epochs
    arrays: checkpoint.Values


class States:
    """Takes the state of some callbacks for checkpoints, and gives it to them after a restart."""

    def __init__(self, callbacks: Sequence[Callback], log: Callable[[str], None], model_dir: str) -> None:
        """`log` takes lines for the log."""
        self._callbacks, self._log, self._model_dir = callbacks, log, model_dir
        self._at_begin: list[dict[str, tuple[int, int]]] = []
        self._appending: list[Callback] = []
        self._warned: set[str] = set()

    def before_begin(self, saved: Saved | None, step: int) -> None:
        """Removes the lines of epochs that are trained again from the files of CSVLoggers."""
        lengths = [attributes.get(_FILE_LENGTH) for attributes in _read(self._callbacks, saved)[0]]
        self._appending = csv_files.go_on(dict(zip(self._callbacks, lengths, strict=True)), self._model_dir, step)

    def after_begin(self, saved: Saved | None) -> None:
        """Gives the callbacks their state, after on_train_begin."""
        for callback in self._appending if saved is None else ():
            callback.append_header = True  # its columns may be others
        self._at_begin = [_fingerprints(callback) for callback in self._callbacks]
        states, lines = _read(self._callbacks, saved)
        for line in lines:
            self._log(f"warning: callbacks(): {line}")
        for callback, attributes in zip(self._callbacks, states, strict=True):
            attributes.pop(_FILE_LENGTH, None)
            users = attributes.pop(_USERS, None)
            for name, value in attributes.items():  # up to 0.2 of users' classes, too
                setattr(callback, name, value)
            if users is not None and _has_state(callback):
                callback.set_state(users)

    def saved(self) -> tuple[list[checkpoint_meta.CallbackState], checkpoint.Values]:
        """Returns the state of each callback, and the arrays in it.

        Raises:
            UserError: get_state() gives what a checkpoint cannot keep.
        """
        states, arrays = list[checkpoint_meta.CallbackState](), checkpoint.Values()
        for callback, before in zip(self._callbacks, self._at_begin, strict=True):
            kind = type(callback).__name__
            try:
                states.append({"kind": kind, "state": packed(_state(callback), arrays)})
            except TypeError as error:
                raise UserError(f"workload: callbacks(): {kind}: checkpoints keep {_KINDS}, not {error}") from None
            changed = [name for name, seen in _fingerprints(callback).items() if before.get(name) != seen]
            if changed and kind not in self._warned:
                self._warned.add(kind)
                self._log(
                    f"warning: callbacks(): checkpoints do not keep {', '.join(changed)} of {kind}, which begins anew "
                    "after a restart; define get_state() and set_state(state) in it"
                )
        return states, arrays


def _state(callback: Callback) -> Attributes:
    state = {name: getattr(callback, name) for name in _kept_of_keras(callback) if hasattr(callback, name)}
    if _has_state(callback):
        state[_USERS] = callback.get_state()
    if isinstance(callback, keras.callbacks.CSVLogger) and Path(callback.filename).exists():
        state[_FILE_LENGTH] = Path(callback.filename).stat().st_size
    return state


def _read(callbacks: Sequence[Callback], saved: Saved | None) -> tuple[list[Attributes], list[str]]:
    """Returns the saved attributes of each callback, by its class, and a line for each state that has no callback and
    for each attribute that cannot be read."""
    left = list(saved.epochs.get("callbacks", ())) if saved is not None else []
    states, lines = list[Attributes](), list[str]()
    for callback in callbacks:
        kind, attributes = type(callback).__name__, Attributes()
        state = next((each for each in left if each["kind"] == kind), None)
        if state is not None and saved is not None:
            left.remove(state)
            for name, value in _pairs(state):
                try:
                    attributes[name] = unpacked(value, saved.arrays)
                except (LookupError, TypeError, ValueError):
                    lines.append(f"{kind}.{name} in the checkpoint cannot be read, and begins anew")
        states.append(attributes)
    gone = [each["kind"] for each in left if _pairs(each)]
    return states, lines + [f"the checkpoint has the state of a {kind}, which is not among them" for kind in gone]


def _pairs(state: checkpoint_meta.CallbackState) -> list[tuple[str, object]]:
    match state["state"]:
        case {"dict": list(pairs)}:
            return [(str(name), value) for name, value in pairs]
    return []


def _has_state(callback: Callback) -> bool:
    return hasattr(callback, "get_state") and hasattr(callback, "set_state")


def _kept_of_keras(callback: Callback) -> Iterator[str]:
    for kind in type(callback).__mro__:
        yield from OF_KERAS.get(kind.__name__, ()) if kind.__module__.startswith("keras.") else ()


def begins_anew(callback: Callback) -> bool:
    """Whether no checkpoint keeps what a user's class adds to a callback."""
    return not type(callback).__module__.startswith(("keras.", "trainer.")) and not _has_state(callback)


def _fingerprints(callback: Callback) -> dict[str, tuple[int, int]]:
    """Returns the identity of each attribute that is not kept, and the length of collections: these show a change.

    Private attributes of a subclass of Keras' own callbacks are left out, as they may be Keras'.
    """
    if not begins_anew(callback):
        return {}
    parent = next(kind for kind in type(callback).__mro__ if kind.__module__.startswith("keras."))
    skipped = {
        "_model",
        "params",
        "mode",
        "monitor_op",
        "writer",
        "csv_file",
        "checkpointer",
        *_kept_of_keras(callback),
    }
    return {
        name: (id(value), len(value) if isinstance(value, (list, dict, set, deque)) else 0)
        for name, value in vars(callback).items()
        if name not in skipped and (parent is keras.callbacks.Callback or not name.startswith("_"))
    }


def packed(value: object, arrays: checkpoint.Values) -> object:
    """Returns a value as JSON in which arrays are replaced by names; they are added to `arrays`.

    Raises:
        TypeError: a part of it is none of _KINDS, and which.
    """
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if isinstance(value, dict) and kind is dict:
        return {"dict": [[packed(key, arrays), packed(each, arrays)] for key, each in value.items()]}
    if isinstance(value, (list, tuple, set)) and kind.__name__ in _SERIES:
        return {kind.__name__: [packed(each, arrays) for each in value]}
    if not isinstance(value, (np.ndarray, np.generic, tf.Tensor)) or isinstance(value, np.ma.MaskedArray):
        raise TypeError(f"a {kind.__name__}")
    array = np.array(value)
    if array.dtype.kind == "O" or array.dtype.names:
        raise TypeError(f"an array of {array.dtype}")
    name = f"{checkpoint.CALLBACKS}{len(arrays):03d}"
    arrays[name] = array
    return {"array" if isinstance(value, np.ndarray) else "number": [name, str(array.dtype)]}


def unpacked(value: object, arrays: checkpoint.Values) -> object:
    """Returns the value that was packed.

    Raises:
        LookupError, TypeError, ValueError: another version of trainer packed it.
    """
    match value:
        case {"array": [str(name), str(dtype)]}:
            return checkpoint.typed(arrays[name], dtype).copy()
        case {"number": [str(name), str(dtype)]}:
            return checkpoint.typed(arrays[name], dtype)[()]
        case {"dict": list(pairs)}:
            return {unpacked(key, arrays): unpacked(each, arrays) for key, each in pairs}
        case dict():
            [(kind, items)] = value.items()
            return _SERIES[kind](unpacked(item, arrays) for item in items)
    return value
