"""A workload is one Python file. This is the contract, for ours and for a user's own:

model() -> keras.Model          required: a plain Keras 3 model, built (it has an Input); for api keras_fit compiled too
DATASET = "mnist"               the dataset if the spec names none; or a data function:
data(shard) -> (x, y)           arrays of the whole split, or dicts of them: we shard, shuffle, batch and resume; or
            -> tf.data.Dataset  of single examples, this shard's only: we repeat, batch and skip
loss(y, prediction)             optional: one value per example; default cross-entropy from logits
METRICS = {"accuracy": f}       optional: f(y, prediction) gives one value per example, as loss does:
                                shape [batch], or the shape of y, of the prediction, or of the prediction without its
                                last axis, which is averaged over all axes but the first; others are refused
evaluate(model) -> dict         optional: final figures by name; default the mean loss and METRICS of the test split
fit(model, run)                 optional, only for api keras_fit: calls model.fit; see `fit.py`
SETTINGS = {"units": 64}        optional: literal values, which `settings` of a spec changes before anything is called

Under api train_and_evaluate it is instead

train_and_evaluate() -> (Estimator, TrainSpec, EvalSpec)        required; see `estimator.py`

Under the strategy graph it is instead

compute(cluster) -> dict        required: places work on the servers; see `cluster.py`
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Literal

from trainer.job import workload_file
from trainer.job.errors import UserError
from trainer.job.messages import nearest
from trainer.job.spec import JobSpec
from trainer.job.strategies import names

if TYPE_CHECKING:
    from trainer.workloads.estimator import EvalSpec, TrainSpec

MODELS = ("mnist", "digits")
GRAPHS = ("sum", "mean", "ensemble", "matmul", "matpow", "remote_gpu")
"""What comes with the package: for training, and for the strategy graph."""
_COLOUR = re.compile(r"\x1b\[\d+m")
"""In errors of Keras."""
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
    fit: Callable[[Any, Any], None] | None = None
    train_spec: TrainSpec | None = None
    eval_spec: EvalSpec | None = None
    """Both only under api train_and_evaluate."""
    sha256: str | None = None
    """What `digest` gave when it was loaded."""


@dataclass(frozen=True)
class Graph:
    """A loaded workload of the strategy graph."""

    name: str
    compute: Callable[[Any], Any]


def check(spec: JobSpec) -> None:
    """Looks at the workload without running it (needs no TensorFlow).

    Raises:
        UserError: unknown name, no such file, a syntax error with its line, a function that is missing, or a setting
            that it does not have.
    """
    name = spec.workload
    tree = workload_file.parse(_file_of(spec), name)
    _check_settings(spec, tree)
    if not name.endswith(".py"):
        return
    defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    defined |= set(_assignments(tree))
    defined |= {a.asname or a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
    if "*" in defined:
        return  # only a run can tell what it has
    function = _entry(spec)
    if function not in defined:
        raise UserError(f"workload: {name}: has no function {function}(); {_CONTRACT}")
    if function == "model" and spec.dataset is None and not {"data", "DATASET"} & defined:
        raise UserError(f"workload: {name}: has neither data() nor DATASET, and the spec names no dataset; {_CONTRACT}")


def digests(spec: JobSpec) -> dict[str, str]:
    """SHA-256 of the workload's file and of each module beside it that it imports, by name.

    Raises:
        UserError: unknown name, or a file cannot be read.
    """
    try:
        return workload_file.digests(_file_of(spec))
    except OSError as error:
        raise _unreadable(spec, error) from None


def digest(spec: JobSpec) -> str:
    """One SHA-256 for `digests`: that of the file, if it stands alone.

    Raises:
        UserError: as `digests`.
    """
    return workload_file.combined(digests(spec))


def require_unchanged(spec: JobSpec, began_with: Mapping[str, str]) -> None:
    """Looks whether the files are as they were when `digests` gave `began_with`, at the start of this task.

    Raises:
        UserError: naming those that are not.
    """
    try:
        changed = workload_file.changed(_file_of(spec), began_with)
    except OSError as error:
        raise _unreadable(spec, error) from None
    if changed:
        raise UserError(
            f"workload: {', '.join(changed)} changed while the job ran, and all of it must train with the same code; "
            "start the job again, with the change or without it"
        )


def _unreadable(spec: JobSpec, error: OSError) -> UserError:
    return UserError(f"workload: {spec.workload}: cannot be read: {error.strerror}")


def check_imports(spec: JobSpec) -> None:
    """Looks whether this machine has what a workload file imports.

    Raises:
        UserError: naming each module that is not here, with its line.
    """
    if spec.workload.endswith(".py") and (problems := workload_file.missing_imports(_file_of(spec), spec.workload)):
        raise UserError(*problems)


def _entry(spec: JobSpec) -> str:
    """The function that a workload must have."""
    return spec.api_traits.entry if spec.traits.trains else "compute"


def _file_of(spec: JobSpec) -> Path:
    name, trains = spec.workload, spec.traits.trains
    if name.endswith(".py"):
        return Path(name)
    if spec.api_traits.own_file:
        raise UserError(f"workload: {name!r}: {spec.api} needs a file of your own; {_CONTRACT}")
    known, others = (MODELS, GRAPHS) if trains else (GRAPHS, MODELS)
    if name in others:
        graph = names(lambda row: not row.trains)
        what = f"is for strategy {graph}; {spec.strategy} trains"
        if not trains:
            what = f"trains a model; strategy {graph} runs"
        raise UserError(f"workload: {name!r}: {what} {', '.join(known)}, or a path that ends in .py")
    if name not in known:
        hint = f"{nearest(name, known)}; known: {', '.join(known)}"
        raise UserError(f"workload: {name!r}: not known{hint}; or a path that ends in .py")
    return Path(__file__).parent / ("" if trains else "graphs") / f"{name}.py"


def _assignments(tree: ast.Module) -> dict[str, ast.expr]:
    """Values of the names that a module assigns at its top."""
    values = {
        t.id: n.value for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)
    }
    annotated = [n for n in tree.body if isinstance(n, ast.AnnAssign)]
    return values | {n.target.id: n.value for n in annotated if isinstance(n.target, ast.Name) and n.value}


def _check_settings(spec: JobSpec, tree: ast.Module) -> None:
    if not spec.settings:
        return
    known = _settings_of(tree)
    if known is None:
        raise UserError(f"workload: {spec.workload}: SETTINGS must be a dict of literal values with names as keys")
    problems = []
    for key, value in spec.settings.items():
        if key not in known:
            hint = nearest(key, known) or f"; workload {spec.workload} has {', '.join(known) or 'none'}"
            problems.append(f"settings.{key}: {value!r}: unknown setting{hint}")
        elif known[key] is not None and not _alike(value, known[key]):
            kind = type(known[key]).__name__
            problems.append(f"settings.{key}: {value!r}: must be {kind}, as its default {known[key]!r}")
    if problems:
        raise UserError(*problems)


def _settings_of(tree: ast.Module) -> dict[str, Any] | None:
    """SETTINGS of a file that was not run: empty if it has none, None if they are not literal."""
    value = _assignments(tree).get("SETTINGS")
    if value is None:
        return {}
    try:
        settings = ast.literal_eval(value)
    except (ValueError, TypeError):
        return None
    return settings if isinstance(settings, dict) and all(isinstance(key, str) for key in settings) else None


def _alike(value: object, default: object) -> bool:
    return type(value) is type(default) or (type(default) is float and type(value) is int)


def runs_code(spec: JobSpec) -> bool:
    """Whether `load` may run TensorFlow operations."""
    return spec.api_traits.estimator or workload_file.runs_code(_file_of(spec))


def load(spec: JobSpec) -> Workload:
    """Imports the workload (and with it Keras).

    Raises:
        UserError: as `check`, or what the file raised, with its line.
    """
    check(spec)
    sha256 = digest(spec)
    module = _import(spec)
    if spec.api_traits.estimator:
        return replace(_estimator(spec.workload, module), sha256=sha256)
    return Workload(
        name=spec.workload,
        model=module.model,
        data=getattr(module, "data", None) if spec.dataset is None else None,
        dataset=spec.dataset or getattr(module, "DATASET", None),
        loss=getattr(module, "loss", None),
        metrics=getattr(module, "METRICS", None),
        evaluate=getattr(module, "evaluate", None),
        fit=getattr(module, "fit", None),
        sha256=sha256,
    )


def _estimator(name: str, module: ModuleType) -> Workload:
    from trainer.workloads.estimator import Estimator, EvalSpec, TrainSpec

    given = module.train_and_evaluate()
    kinds = (Estimator, TrainSpec, EvalSpec)
    if not isinstance(given, tuple) or len(given) != len(kinds) or not all(map(isinstance, given, kinds)):
        raise UserError(f"workload: {name}: train_and_evaluate() must give (Estimator, TrainSpec, EvalSpec)")
    estimator, train_spec, eval_spec = given
    metrics = {} if estimator.metrics is None and estimator.loss is not None else estimator.metrics
    return Workload(
        name=name,
        model=estimator.model,
        loss=estimator.loss,
        metrics=None if metrics is None else dict(metrics),
        train_spec=train_spec,
        eval_spec=eval_spec,
    )


def load_graph(spec: JobSpec) -> Graph:
    """Imports a workload of the strategy graph (and with it TensorFlow).

    Raises:
        UserError: as `load`.
    """
    check(spec)
    return Graph(spec.workload, _import(spec).compute)


def original(error: BaseException) -> BaseException:
    """The error that AutoGraph, which runs a translation of every function of a graph, put into one of its own."""
    while (cause := error.__context__) is not None and hasattr(cause, "ag_error_metadata"):
        error = cause
    return error


def where_it_failed(error: BaseException, workload: str) -> str | None:
    """`file:line: Type: text` of the innermost frame in the user's workload file or in a module beside it that it
    imports, or None: it is not theirs."""
    if not workload.endswith(".py"):
        return None
    error = original(error)
    frames = [(f.filename, f.lineno) for f in traceback.extract_tb(error.__traceback__)]
    # A translation's frames name a temporary file; AutoGraph keeps those of its source, innermost first.
    translated = getattr(error, "ag_error_metadata", None)
    frames += [(f.filename, f.lineno) for f in reversed(translated.translated_stack)] if translated else []
    own = own_files(workload)
    lines = [(own[file], line) for file, line in frames if file in own]
    if not lines:
        return None
    text = " ".join(_COLOUR.sub("", str(error)).split())
    return f"workload: {lines[-1][0]}:{lines[-1][1]}: {type(error).__name__}: {text[:300]}"


def own_files(workload: str) -> dict[str, str]:
    """A workload file and those beside it that it imports: their names by their paths in a traceback."""
    path, names = Path(workload), {str(Path(workload).absolute()): workload}
    with contextlib.suppress(UserError):
        files = [file for module in workload_file.helpers(path) for file in workload_file.files_of(module)]
        names |= {str(file.absolute()): str(file) for file in files}
    return names


def _import(spec: JobSpec) -> ModuleType:
    name = spec.workload
    package = "trainer.workloads" if spec.traits.trains else "trainer.workloads.graphs"
    module = _import_file(name) if name.endswith(".py") else importlib.import_module(f"{package}.{name}")
    if not hasattr(module, _entry(spec)):
        raise UserError(f"workload: {name}: has no function {_entry(spec)}(); {_CONTRACT}")
    if spec.settings:
        module.SETTINGS.update(spec.settings)
    return module


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
