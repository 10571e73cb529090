"""The process that loads the exports of a job, calls each, and compares its outputs; see `reload.py`.

It loads model.keras without the user's file first, as a program elsewhere would, then with what such a program may add.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import signal
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from trainer import host
from trainer.job import load
from trainer.job.messages import digits
from trainer.job.spec import JobSpec
from trainer.model_dir import compatibility, layout
from trainer.model_dir.files import write_json
from trainer.model_dir.regular import regular
from trainer.training.runtime.user_code import essence
from trainer.workloads.load import load_workload, own_modules, search_working_directory
from trainer.workloads.types import Model, Tensor

REGISTER = "@keras.saving.register_keras_serializable()"
_NAMED = re.compile(r'"(?:class_name|config)": "(?:[^">]*>)?([^"]+)"')
"""A class or function in the config of a model: Keras writes PACKAGE>NAME for one that is registered."""


def main() -> None:
    host.die_with_parent(signal.SIGKILL)
    host.be_killed_first()
    search_working_directory()
    spec = load.load_environment()
    if folder := sys.stdin.readline().rstrip("\n"):  # otherwise the job failed meanwhile
        check(Path(folder), spec)


def check(folder: Path, spec: JobSpec) -> None:
    """Checks what a request asks for, and writes the verdicts beside it, after each export."""
    request = json.loads((folder / "request.json").read_text())
    verdicts: dict[str, str] = {}
    # A SavedModel is loaded before the user's file is imported: nothing of it may help.
    for name in sorted(request["digests"], reverse=True):
        path = layout.export(spec.directory) / name
        same = digest(path) == request["digests"][name]
        verdicts[name] = _verdict(path, folder, request, spec) if same else "was changed after the job had written it"
        write_json(folder / "verdicts.json", verdicts)


def digest(path: Path) -> str:
    """SHA-256 of an export: of its files, with their names."""
    whole = hashlib.sha256()
    for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if not each.is_dir():
            with open(each, "rb", opener=regular) as file:
                whole.update(f"{each.relative_to(path)}\0{compatibility.sha256(file)}\0".encode())
    return whole.hexdigest()


def _verdict(path: Path, folder: Path, request: dict[str, Any], spec: JobSpec) -> str:
    try:
        call, only = _load_keras(path, spec) if path.suffix == ".keras" else (_load_saved_model(path), "")
    except Exception as error:
        return f"cannot be loaded: {_text_of(error)}"
    if why := request.get("not_compared"):
        return f"loaded{only}, not compared: no batch of the test split: {why}"
    x, expected = next(iter(tf.data.Dataset.load(str(folder / f"{path.name}.batch"))))
    try:
        first, second = call(x), call(x)
    except Exception as error:
        return f"loaded{only}, cannot be called: {_text_of(error)}"
    if difference(first, second, request["tolerance"]):
        return f"random at inference: two calls differ, so it is not compared; loaded{only}"
    differs = difference(expected, first, request["tolerance"])
    return f"differs: {differs}, compared with the trained model{only}" if differs else f"equal{only}"


def _text_of(error: Exception) -> str:
    # Keras quotes the errors within an error after whole configs (keras/src/saving/serialization_lib.py).
    text = essence(re.split(r"(?:Exception encountered|Error encountered during deserialization):", str(error))[-1])
    return text if text.startswith(("<class", "Could not")) else f"{type(error).__name__}: {text}"


Call = Callable[[Tensor], list[Tensor]]


def _load_keras(path: Path, spec: JobSpec) -> tuple[Call, str]:
    """Loads a .keras file; returns its model's outputs, and what it took if more than the file: ", only with ...".

    Raises:
        Exception: that of the last attempt.
    """
    last: Exception | None = None
    for only, options in _ways(path, spec):
        try:
            model = tf.keras.models.load_model(str(path), **options)
        except Exception as error:
            print(f"{path}{only}: {_text_of(error)}", file=sys.stderr)
            last = error
        else:
            return functools.partial(outputs, model), only
    assert last is not None
    raise last


def _ways(path: Path, spec: JobSpec) -> Iterator[tuple[str, dict[str, object]]]:
    """Yields what a program may give to load_model besides the file, the least first, with words for it."""
    lambdas = "safe_mode=False: a Lambda layer is Python code"
    yield "", {}
    yield ", only with compile=False: its loss, metrics or optimizer are not Keras' own", {"compile": False}
    yield f", only with {lambdas}", {"compile": False, "safe_mode": False}
    load_workload(spec)
    own = {name: value for module in own_modules(spec) for name, value in vars(module).items() if _is_users(value)}
    with zipfile.ZipFile(path) as archive:
        named = dict.fromkeys(_NAMED.findall(archive.read("config.json").decode()))
    needed = [name for name in named if name in own]
    names, each = ", ".join(needed), "each of them" if len(needed) > 1 else "it"
    registers = f", which registers {names}" if names else ""
    yield f", only after import of {spec.workload}{registers}", {"compile": False}
    only = f", only with custom_objects for {names}: put {REGISTER} before {each} in the workload file"
    with_own: dict[str, object] = {"compile": False, "custom_objects": {name: own[name] for name in needed}}
    yield only, with_own
    yield f"{only}, and with {lambdas}", {**with_own, "safe_mode": False}


def _is_users(value: object) -> bool:
    return callable(value) and str(getattr(value, "__module__", None)).partition(".")[0] not in ("keras", "tensorflow")


def _load_saved_model(path: Path) -> Call:
    served = tf.saved_model.load(str(path))
    (wanted,) = served.serve.concrete_functions[0].structured_input_signature[0]
    return lambda x: flat(served.serve(as_asked(wanted, x)))


def as_asked(wanted: Tensor, x: Tensor) -> Tensor:
    """Inputs as a SavedModel's signature wants them, which is stricter than a Keras model: types, ranks and names."""
    specs = tf.nest.flatten(wanted)
    if isinstance(x, dict):
        # tf.nest sorts the keys of a dict; a signature's own have no order.
        names = sorted(wanted) if isinstance(wanted, dict) else [spec.name for spec in specs]
        x = [x[name] for name in names] if set(names) <= set(x) else list(x.values())
    parts = [_as_spec(part, spec) for part, spec in zip(tf.nest.flatten(x), specs, strict=True)]
    return tf.nest.pack_sequence_as(wanted, parts)


def _as_spec(part: Tensor, spec: tf.TensorSpec) -> Tensor:
    part = part if part.dtype == spec.dtype else tf.cast(part, spec.dtype)
    if isinstance(part, tf.Tensor) and spec.shape.rank is not None:
        if part.shape.rank == spec.shape.rank - 1:
            return part[..., None]
        if part.shape.rank == spec.shape.rank + 1 and part.shape[-1] == 1:
            return part[..., 0]
    return part


def outputs(model: Model, x: Tensor) -> list[Tensor]:
    """The parts of a model's output at inference, in order."""
    return flat(model(x, training=False))


def flat(structure: Tensor) -> list[Tensor]:
    return [tf.convert_to_tensor(part) for part in tf.nest.flatten(structure, expand_composites=True)]


def difference(expected: Sequence[Tensor], actual: Sequence[Tensor], share: float) -> str | None:
    """How outputs differ, floats by more than this share of the largest value; None if they do not."""
    if len(expected) != len(actual):
        return f"it gives {len(actual)} tensors, the trained model {len(expected)}"
    for i, (one, other) in enumerate(zip(expected, actual, strict=True)):
        which = f"output {i + 1}" if len(expected) > 1 else "the output"
        if one.shape != other.shape:
            return f"{which} has the shape {other.shape}, that of the trained model {one.shape}"
        if why := _distance(one, other, share):
            return f"{which} differs {why}"
    return None


def _distance(expected: Tensor, actual: Tensor, share: float) -> str | None:
    if expected.dtype != actual.dtype or not (expected.dtype.is_floating or expected.dtype.is_complex):
        unequal = np.count_nonzero(np.asarray(expected) != np.asarray(actual))
        return f"in {unequal} of {int(tf.size(expected))} values" if unequal else None
    wide = tf.complex128 if expected.dtype.is_complex else tf.float64
    one, other = (np.asarray(tf.cast(each, wide)) for each in (expected, actual))
    largest = float(np.max(np.abs(one), initial=0.0, where=np.isfinite(one)))
    far = ~np.isclose(other, one, rtol=0, atol=share * largest, equal_nan=True)
    if not far.any():
        return None
    with np.errstate(invalid="ignore"):
        distance = float(np.abs(one - other)[far].max())
    return f"by up to {digits(distance)}, where its largest value is {digits(largest)}"


if __name__ == "__main__":
    main()
