"""Imports a workload, and thereby Keras or TensorFlow."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from trainer.job import code, workload_file
from trainer.job.errors import UserError
from trainer.job.spec import JobSpec
from trainer.workloads.check import check_workload
from trainer.workloads.digests import digest
from trainer.workloads.locate import where_it_failed
from trainer.workloads.signatures import require_functions
from trainer.workloads.workload import CONTRACT, Graph, Workload, entry, file_of


def search_working_directory() -> None:
    """Lets a workload import modules from the working directory, unless PYTHONSAFEPATH is set, as in our images. Called
    after all imports of our own, so that no file there hides what they need."""
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, str(Path.cwd()))


def load_workload(spec: JobSpec) -> Workload:
    """Imports the workload, and thereby Keras.

    Raises:
        UserError: as `check_workload`, or for an error raised by the file, with its line.
    """
    check_workload(spec)
    sha256 = digest(spec)
    module = _import(spec)
    if spec.api_traits.estimator:
        return replace(_estimator(spec.workload, module), sha256=sha256)
    return Workload(
        name=spec.workload,
        model=module.model,
        data=getattr(module, "data", None) if spec.dataset is None else None,
        validation=getattr(module, "validation", None) if spec.dataset is None else None,
        dataset=spec.dataset or getattr(module, "DATASET", None),
        loss=getattr(module, "loss", None),
        metrics=getattr(module, "METRICS", None),
        optimizer=getattr(module, "optimizer", None),
        evaluate=getattr(module, "evaluate", None),
        fit=getattr(module, "fit", None),
        callbacks=getattr(module, "callbacks", None),
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
    """Imports a workload of the strategy graph, and thereby TensorFlow.

    Raises:
        UserError: as `load_workload`.
    """
    check_workload(spec)
    return Graph(spec.workload, _import(spec).compute)


def own_modules(spec: JobSpec) -> list[ModuleType]:
    """The module of a workload that is loaded, and those that it has imported from beside it or from the spec's code.

    Its functions may be of any of them, or of none, such as a functools.partial.
    """
    path, root = file_of(spec), code.root(spec)
    files = {path, *(file for each in workload_file.helpers(path, root) for file in workload_file.files_of(each))}
    files = {file.absolute() for file in files}
    found = [m for m in list(sys.modules.values()) if (file := getattr(m, "__file__", None)) and Path(file) in files]
    return sorted(found, key=lambda module: Path(str(module.__file__)) != path.absolute())


def _import(spec: JobSpec) -> ModuleType:
    name = spec.workload
    package = "trainer.workloads" if spec.traits.trains else "trainer.workloads.graphs"
    module = (
        _import_file(name, code.root(spec)) if name.endswith(".py") else importlib.import_module(f"{package}.{name}")
    )
    if not hasattr(module, entry(spec)):
        raise UserError(f"workload: {name}: has no function {entry(spec)}(); {CONTRACT}")
    require_functions(spec, module)
    if spec.settings:
        module.SETTINGS.update(spec.settings)
    return module


def _import_file(name: str, root: Path | None = None) -> ModuleType:
    path = Path(name).absolute()
    # A distinct name: a file called json.py must not hide the standard library's.
    module_name = f"trainer_workload_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(module_name, path)
    if module_spec is None or module_spec.loader is None:
        raise UserError(f"workload: {name}: cannot be imported")
    module = importlib.util.module_from_spec(module_spec)
    # AutoGraph and pickling look up a function's module by name. The file's folder is searched last for its imports:
    # as the first place it would hide modules of the standard library that are not imported yet.
    sys.modules[module_name] = module
    sys.path += [str(folder) for folder in (path.parent, root) if folder]
    try:
        module_spec.loader.exec_module(module)
    except Exception as error:
        place = where_it_failed(error, name) or f"workload: {name}: {type(error).__name__}: {error}"
        raise UserError(place) from error
    return module
