"""Checks a workload without running it or importing TensorFlow."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trainer.job import code, workload_file
from trainer.job.errors import UserError
from trainer.job.messages import nearest
from trainer.job.spec import JobSpec
from trainer.workloads.places import unknown_data
from trainer.workloads.signatures import check_signatures
from trainer.workloads.types import Settings
from trainer.workloads.workload import CONTRACT, entry, file_of


def check_workload(spec: JobSpec) -> None:
    """Checks what would fail only on a cluster's machines. What a start of the job checks by itself is not here.

    Raises:
        UserError: an unknown name, a missing file, a syntax error with its line, a missing function or an unknown
            setting.
    """
    name = spec.workload
    tree = workload_file.parse(file_of(spec), name)
    _check_settings(spec, tree)
    if spec.code:
        code.files(spec)
    if not name.endswith(".py"):
        return
    _check_data(spec, tree)
    defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    defined |= set(_assignments(tree))
    defined |= {a.asname or a.name for n in tree.body if isinstance(n, ast.ImportFrom) for a in n.names}
    if "fit" in defined and not spec.api_traits.calls_fit:
        raise UserError(f"workload: {name}: has fit(), which the loop does not call; set api: keras_fit, or remove it")
    if "callbacks" in defined and spec.api_traits.estimator:
        raise UserError(f"workload: {name}: callbacks() is not called here; use hooks of the TrainSpec")
    check_signatures(spec, tree)
    if "*" in defined:
        return  # known only after the file has run
    function = entry(spec)
    if function not in defined:
        raise UserError(f"workload: {name}: has no function {function}(); {CONTRACT}")
    if function == "model" and spec.dataset is None and not {"data", "DATASET"} & defined:
        raise UserError(f"workload: {name}: has neither data() nor DATASET, and the spec names no dataset; {CONTRACT}")


def own_optimizer(spec: JobSpec) -> str | None:
    """Where the workload sets the optimizer that the loop uses, as far as its file shows; None if the spec does."""
    if not spec.workload.endswith(".py") or spec.api_traits.calls_fit:
        return None
    tree = workload_file.parse(file_of(spec), spec.workload)
    if any(isinstance(n, ast.FunctionDef) and n.name == "optimizer" for n in tree.body):
        return "optimizer()"
    modules = {a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    calls = (n.func for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute))
    compiles = any(call.attr == "compile" and ast.unparse(call.value) not in {*modules, "super()"} for call in calls)
    return "model.compile, if it is called" if compiles else None


def check_imports(spec: JobSpec) -> None:
    """Checks that the modules that a workload file imports are installed on this machine.

    Raises:
        UserError: names each missing module with its line.
    """
    name = spec.workload
    if not name.endswith(".py"):
        return
    if problems := workload_file.missing_imports(file_of(spec), name, code.root(spec)):
        raise UserError(*problems)


def runs_code(spec: JobSpec) -> bool:
    """Whether loading it may run TensorFlow operations."""
    return spec.api_traits.estimator or workload_file.runs_code(file_of(spec), code.root(spec))


def _assignments(tree: ast.Module) -> dict[str, ast.expr]:
    """Values by name of a module's top-level assignments."""
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


def _check_data(spec: JobSpec, tree: ast.Module) -> None:
    """Checks the names in calls of `trainer.data`, except those within `if` or `try`, which may never run: the one of
    the test split would else fail after all training."""
    problems = [
        f"workload: {spec.workload}:{call.lineno}: {unknown_data(name, spec.data)}"
        for call in _certain(tree)
        if isinstance(call, ast.Call) and ast.unparse(call.func) == "trainer.data" and len(call.args) == 1
        for name in [getattr(call.args[0], "value", None)]
        if isinstance(name, str) and name not in spec.data
    ]
    if problems:
        raise UserError(*problems)


def _certain(node: ast.AST) -> Iterator[ast.AST]:
    """A node and all below it, but nothing within `if` or `try`."""
    if not isinstance(node, (ast.If, ast.IfExp, ast.Try)):
        yield node
        for child in ast.iter_child_nodes(node):
            yield from _certain(child)


def _settings_of(tree: ast.Module) -> Settings | None:
    """SETTINGS of a file, read from its syntax tree: empty if it has none, None if they are not literal."""
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
