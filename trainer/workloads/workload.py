"""A workload is one Python file. This is the contract, for ours and for a user's own:

model() -> keras.Model          required: a plain Keras 3 model, built (it has an Input)
DATASET = "mnist"               the dataset if the spec names none; or a data function:
data(shard) -> (x, y)           arrays of the whole split: we shard, shuffle, batch and resume; or
            -> tf.data.Dataset  of single examples, this shard's only: we repeat, batch and skip
loss(y, prediction)             optional: one value per example; default cross-entropy from logits
METRICS = {"accuracy": f}       optional: f(y, prediction) gives one value per example
evaluate(model) -> dict         optional: final figures by name; default the mean loss and METRICS of the test split
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from trainer.job.errors import UserError
from trainer.job.spec import JobSpec

BUILT_IN = ("mnist", "digits")
_CONTRACT = "see `trainer/workloads/workload.py` for what a workload file holds"


@dataclass(frozen=True)
class Shard:
    """Which part of the data is asked for. Under parameter_server `index` is a scalar tensor."""

    split: Literal["train", "test"]
    index: Any = 0
    count: int = 1
    seed: int = 0


@dataclass(frozen=True)
class Workload:
    """A loaded workload; absent parts are None."""

    name: str
    model: Callable[[], Any]
    data: Callable[[Shard], Any] | None = None
    dataset: str | None = None
    loss: Callable[[Any, Any], Any] | None = None
    metrics: dict[str, Callable[[Any, Any], Any]] | None = field(default=None)
    evaluate: Callable[[Any], dict[str, float]] | None = None


def check(spec: JobSpec) -> None:
    """Looks at the workload without running it (needs no TensorFlow).

    Raises:
        UserError: unknown name, no such file, a syntax error with its line, or no `model` function.
    """
    name = spec.workload
    if not name.endswith(".py"):
        if name not in BUILT_IN:
            raise UserError(f"workload: {name!r}: not known; known: {', '.join(BUILT_IN)}; or a path that ends in .py")
        return
    try:
        tree = ast.parse(Path(name).read_text(encoding="utf-8"), filename=name)
    except FileNotFoundError:
        raise UserError(f"workload: {name}: no such file (a path is relative to the spec)") from None
    except OSError as error:
        raise UserError(f"workload: {name}: cannot be read: {error.strerror}") from None
    except SyntaxError as error:
        place = f"{name}:{error.lineno}" if error.lineno else name
        raise UserError(f"workload: {place}: syntax error: {error.msg}") from None
    except ValueError as error:
        raise UserError(f"workload: {name}: is not Python text: {error}") from None
    defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    targets = [t for n in tree.body if isinstance(n, ast.Assign) for t in n.targets]
    targets += [n.target for n in tree.body if isinstance(n, ast.AnnAssign) and n.value]
    assigned = {t.id for t in targets if isinstance(t, ast.Name)}
    imported = {a.asname or a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
    if "model" not in defined | assigned | imported:
        raise UserError(f"workload: {name}: has no function model(); {_CONTRACT}")
    if spec.dataset is None and not {"data", "DATASET"} & (defined | assigned | imported):
        raise UserError(f"workload: {name}: has neither data() nor DATASET, and the spec names no dataset; {_CONTRACT}")


def load(spec: JobSpec) -> Workload:
    """Imports the workload (and with it Keras).

    Raises:
        UserError: as `check`, or what the file raised, with its line.
    """
    check(spec)
    module = _import_file(spec.workload) if spec.workload.endswith(".py") else _import_built_in(spec.workload)
    return Workload(
        name=spec.workload,
        model=module.model,
        data=getattr(module, "data", None) if spec.dataset is None else None,
        dataset=spec.dataset or getattr(module, "DATASET", None),
        loss=getattr(module, "loss", None),
        metrics=getattr(module, "METRICS", None),
        evaluate=getattr(module, "evaluate", None),
    )


def original(error: BaseException) -> BaseException:
    """The error that AutoGraph, which runs a translation of every function of a graph, put into one of its own."""
    while (cause := error.__context__) is not None and hasattr(cause, "ag_error_metadata"):
        error = cause
    return error


def where_it_failed(error: BaseException, workload: str) -> str | None:
    """`file:line: Type: text` of the innermost frame in the user's workload file, or None: it is not theirs."""
    if not workload.endswith(".py"):
        return None
    error = original(error)
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    # A translation's frames name a temporary file; AutoGraph keeps those of its source, innermost first.
    translated = getattr(error, "ag_error_metadata", None)
    frames += [(f.filename, f.lineno) for f in reversed(translated.translated_stack)] if translated else []
    lines = [line for file, line in frames if Path(file) == Path(workload).absolute()]
    if not lines:
        return None
    text = " ".join(str(error).split())
    return f"workload: {workload}:{lines[-1]}: {type(error).__name__}: {text[:300]}"


def _import_built_in(name: str) -> ModuleType:
    return importlib.import_module(f"trainer.workloads.{name}")


def _import_file(name: str) -> ModuleType:
    path = Path(name).absolute()
    # A name of its own: a file called json.py must not hide the standard library's.
    module_name = f"trainer_workload_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None:
        raise UserError(f"workload: {name}: cannot be imported")
    module = importlib.util.module_from_spec(module_spec)
    # AutoGraph and pickling look a function's module up by name; the file's own folder serves its imports, as the
    # last place to look: first, it would hide what the standard library has not imported yet.
    sys.modules[module_name] = module
    sys.path.append(str(path.parent))
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        place = where_it_failed(error, name) or f"workload: {name}: {type(error).__name__}: {error}"
        raise UserError(place) from error
    return module
