"""Checks that trainer can call a workload's functions: from the syntax tree, and once it is loaded."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from types import ModuleType

from trainer.job.errors import UserError
from trainer.job.spec import JobSpec
from trainer.workloads.workload import SHARD, entry

_OF_A_MODEL: dict[str, tuple[str, ...]] = {
    "model": (), "data": ("shard",), "validation": ("shard",), "loss": ("y", "prediction"), "evaluate": ("model",),
    "optimizer": ("steps", "replicas"), "callbacks": (), "fit": ("model", "run"),
}  # fmt: skip
"""The functions of a workload with a model, and their arguments."""
_DISPLAYS = (ast.Tuple, ast.List, ast.Dict, ast.Set)
"""Values that cannot be called."""


def check_signatures(spec: JobSpec, tree: ast.Module) -> None:
    """Checks each function that trainer calls, if its definition is all that the file binds to its name.

    Raises:
        UserError: a function cannot be called with what trainer gives.
    """
    bound = _bound(tree)
    if "*" in bound:  # an import, which may bind any name
        return
    # A decorator may change what a function takes.
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef) and not n.decorator_list}
    assigned = {
        t.id: n.value for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)
    }
    for name, given in _called(spec):
        if bound[name] == 1 and isinstance(value := assigned.get(name), _DISPLAYS):
            raise _no_function(f"{spec.workload}:{value.lineno}", name, given, type(value).__name__.lower())
        if bound[name] != 1 or name not in functions:
            continue
        function = functions[name]
        parameters = [*function.args.posonlyargs, *function.args.args]
        if name == "callbacks" and "model_dir" in [each.arg for each in parameters]:
            given = ("model_dir",)
        place, call = f"workload: {spec.workload}", f"{name}({', '.join(given)})"
        about = f": {SHARD}" if given == ("shard",) else ""
        if not _takes(function.args, len(given)):
            raise UserError(
                f"{place}:{function.lineno}: {name}({ast.unparse(function.args)}) is called as {call}; write "
                f"def {call}{about}"
            )


def require_functions(spec: JobSpec, module: ModuleType) -> None:
    """Checks that a loaded workload has functions where trainer calls them.

    Raises:
        UserError: it has a value, such as the model that the function is to make.
    """
    for name, given in _called(spec):
        value = getattr(module, name, None)
        # A Keras model can be called.
        is_model = name == "model" and hasattr(value, "trainable_variables")
        if (value is not None or name == entry(spec)) and (is_model or not callable(value)):
            raise _no_function(spec.workload, name, given, type(value).__name__)


def _called(spec: JobSpec) -> list[tuple[str, tuple[str, ...]]]:
    """The functions that trainer calls, with their arguments."""
    if (name := entry(spec)) not in _OF_A_MODEL:
        return [(name, () if spec.traits.trains else ("cluster",))]
    replaced = ("data", "validation") if spec.dataset is not None else ()
    return [(name, given) for name, given in _OF_A_MODEL.items() if name not in replaced]


def _no_function(place: str, name: str, given: tuple[str, ...], kind: str) -> UserError:
    call = f"{name}({', '.join(given)})"
    return UserError(
        f"workload: {place}: {name} is a {kind}, and trainer calls {call}; write def {call}, or use another name"
    )


def _takes(parameters: ast.arguments, count: int) -> bool:
    """Whether a function can be called with this number of arguments."""
    named = len(parameters.posonlyargs) + len(parameters.args)
    if None in parameters.kw_defaults:  # required, and only by keyword
        return False
    return named - len(parameters.defaults) <= count and (count <= named or parameters.vararg is not None)


def _bound(tree: ast.Module) -> Counter[str]:
    """How often a module binds or deletes each name."""
    in_functions = (n for n in ast.walk(tree) if isinstance(n, ast.Global))
    return Counter(name for n in [*_outside_functions(tree), *in_functions] for name in _names(n))


def _outside_functions(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        for child in ast.iter_child_nodes(node):
            yield from _outside_functions(child)


def _names(node: ast.AST) -> list[str]:
    """The names that a node by itself binds or deletes."""
    match node:
        case (
            ast.Name(id=name, ctx=ast.Store() | ast.Del())
            | ast.arg(arg=name)
            | ast.FunctionDef(name=name)
            | ast.AsyncFunctionDef(name=name)
            | ast.ClassDef(name=name)
            | ast.ExceptHandler(name=str(name))
            | ast.MatchAs(name=str(name))
            | ast.MatchStar(name=str(name))
            | ast.MatchMapping(rest=str(name))
        ):
            return [name]
        case ast.alias(name, asname):
            return [(asname or name).partition(".")[0]]
        case ast.Global(names) | ast.Nonlocal(names):
            return names
    return []
