"""The process that loads the exports of a job again, see `reload.py`.

It loads model.keras without the user's file first, as a program elsewhere would; where that fails it finds the least
that makes it work.
"""

from __future__ import annotations

import json
import re
import signal
import sys
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TypedDict

import tensorflow as tf
from typing_extensions import NotRequired

from trainer import host
from trainer.job import load
from trainer.job.spec import JobSpec
from trainer.model_dir import layout
from trainer.model_dir.files import write_json
from trainer.training.outputs import compare
from trainer.training.runtime.user_code import essence
from trainer.workloads.load import load_workload, own_modules, search_working_directory
from trainer.workloads.types import Model, Tensor


class Request(TypedDict):
    """request.json."""

    names: list[str]
    tolerance: float
    random_layers: NotRequired[list[str]]
    not_compared: NotRequired[str]
    """Why there is no batch to compare on; the other fields are missing then."""


class Options(TypedDict, total=False):
    """Of keras.models.load_model."""

    compile: bool
    custom_objects: dict[str, object]
    safe_mode: bool


KERAS = frozenset({"keras", "keras_hub", "keras_cv", "keras_nlp", "builtins"})
"""Packages whose classes Keras finds by itself (`_retrieve_class_or_fn` in keras/src/saving/serialization_lib.py)."""
REGISTER = "@keras.saving.register_keras_serializable()"


def main() -> None:
    host.die_with_parent(signal.SIGKILL)
    host.be_killed_first()
    search_working_directory()
    folder, spec = Path(sys.argv[1]), load.load_environment()
    if sys.stdin.readline():  # otherwise the job failed meanwhile
        check(folder, spec)


def check(folder: Path, spec: JobSpec) -> None:
    """Checks what a request asks for, and writes the verdicts beside it, after each export."""
    request: Request = json.loads((folder / "request.json").read_text())
    verdicts: dict[str, str] = {}
    # A SavedModel is loaded before the user's file is imported: nothing of it may help.
    for name in sorted(request["names"], reverse=True):
        verdicts[name] = _verdict(layout.export(spec.directory) / name, folder, request, spec)
        write_json(folder / "verdicts.json", verdicts)


def _verdict(path: Path, folder: Path, request: Request, spec: JobSpec) -> str:
    try:
        model, only = load_keras(path, spec) if path.suffix == ".keras" else (_load_saved_model(path), "")
    except Exception as error:
        return f"cannot be loaded: {_text_of(error)}"
    if why := request.get("not_compared"):
        return f"loaded{only}, not compared: no batch of the test split: {why}"
    x, expected = next(iter(tf.data.Dataset.load(str(folder / f"{path.name}.batch"))))
    try:
        first, second = model(x), model(x)
    except Exception as error:
        return f"loaded{only}, cannot be called: {_text_of(error)}"
    share = request["tolerance"]
    if compare.difference(first, second, share):
        layers = ", ".join(request["random_layers"])
        return f"random at inference{layers and f' ({layers})'}: two calls differ, so it is not compared; loaded{only}"
    found = compare.difference(expected, first, share)
    return f"differs: {found}, compared with the trained model{only}" if found else f"equal{only}"


def _text_of(error: Exception) -> str:
    # Keras quotes the errors within an error after whole configs (keras/src/saving/serialization_lib.py).
    text = essence(re.split(r"(?:Exception encountered|Error encountered during deserialization):", str(error))[-1])
    return text if text.startswith(("<class", "Could not")) else f"{type(error).__name__}: {text}"


Call = Callable[[Tensor], list[Tensor]]


def _load_saved_model(path: Path) -> Call:
    served = tf.saved_model.load(str(path))
    (wanted,) = served.serve.concrete_functions[0].structured_input_signature[0]
    return lambda x: compare.flat(served.serve(as_asked(wanted, x)))


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


# model.keras. -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Custom:
    """A class or function in the config of a model that Keras has not."""

    name: str
    module: str
    """Empty for a function: its config does not name it (keras/src/saving/serialization_lib.py)."""
    registered: str
    """The name under which Keras looks it up."""


def load_keras(path: Path, spec: JobSpec) -> tuple[Call, str]:
    """The model in a .keras file, and what it took to load it if more than the file: ", only with ...".

    Raises:
        Exception: that of the last attempt.
    """
    with zipfile.ZipFile(path) as archive:
        whole = json.loads(archive.read("config.json"))
    unknown = [each for each in dict.fromkeys(custom_objects(whole)) if _registered(each) is None]
    attempts: list[tuple[str, Options]] = [
        ("", {}),
        (", only with compile=False: its loss, metrics or optimizer are not Keras' own", {"compile": False}),
    ]
    for only, options in attempts:
        model = _attempt(path, options)
        if model is not None:
            return _calls(model), only
    load_workload(spec)
    own = own_modules(spec)
    known = [each for each in unknown if _registered(each) is not None]
    given = {each: found for each in unknown if each not in known and (found := _in_its_module(each, own)) is not None}
    others = list(given)
    only = f", only after import of {spec.workload}, which registers {_names(known)}" if known else ""
    if others:
        only += (
            f"{', and' if only else ', only'} with custom_objects for {_names(others)}: put {REGISTER} before "
            f"{'each of them' if len(others) > 1 else 'it'} in the workload file"
        )
    more: Options = {"compile": False, "custom_objects": {each.registered: found for each, found in given.items()}}
    if not _has_lambda(whole):
        return _calls(_load(path, more)), only or f", only after import of {spec.workload}"
    only += f"{', and' if only else ', only'} with safe_mode=False: a Lambda layer is Python code"
    return _calls(_load(path, {**more, "safe_mode": False})), only


def _calls(model: Model) -> Call:
    return lambda x: compare.outputs(model, x)


def _load(path: Path, options: Options) -> Model:
    # tf.keras is the Keras that exported it, see training/main.py.
    return tf.keras.models.load_model(str(path), **options)


def _attempt(path: Path, options: Options) -> Model | None:
    try:
        return _load(path, options)
    except Exception as error:
        print(f"{path}: {options}: {_text_of(error)}", file=sys.stderr)
        return None


def custom_objects(config: object) -> Iterator[Custom]:
    """The classes and functions that are not Keras' own in the JSON config of a model."""
    if isinstance(config, dict):
        module, kind, registered = (config.get(key) for key in ("module", "class_name", "registered_name"))
        if isinstance(kind, str) and isinstance(registered, str):
            if (module, kind) == ("builtins", "function") and isinstance(function := config.get("config"), str):
                yield Custom(function.rpartition(">")[2], "", function)
            elif str(module or "").partition(".")[0] not in KERAS:
                yield Custom(kind, str(module or ""), registered)
        for each in config.values():
            yield from custom_objects(each)
    elif isinstance(config, list):
        for each in config:
            yield from custom_objects(each)


def _has_lambda(config: object) -> bool:
    return '"__lambda__"' in json.dumps(config)


def _registered(each: Custom) -> object:
    return tf.keras.utils.get_registered_object(each.registered)


def _in_its_module(each: Custom, own: list[ModuleType]) -> object:
    """What it names: a class in its module, a function in the first of these modules that has it."""
    modules = [sys.modules.get(each.module)] if each.module else own
    found = next((getattr(module, each.name) for module in modules if hasattr(module, each.name)), None)
    # A function of Keras itself is in the config as others are.
    return None if getattr(found, "__module__", "").partition(".")[0] == "keras" else found


def _names(customs: list[Custom]) -> str:
    return ", ".join(each.name for each in customs)


if __name__ == "__main__":
    main()
