"""Imports of a workload file, and whether importing it runs code: read from its syntax tree, without TensorFlow."""

from __future__ import annotations

import ast
import builtins
import hashlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from trainer.job.errors import UserError
from trainer.job.messages import RELATIVE

_QUIET = {"numpy"} | (sys.stdlib_module_names - {"importlib"})
"""Modules whose functions do not run TensorFlow."""
_BINDERS = (ast.Assign, ast.AnnAssign, ast.NamedExpr, ast.For, ast.comprehension, ast.withitem)


def parse(path: Path, name: str) -> ast.Module:
    """The file's syntax tree.

    Raises:
        UserError: it cannot be read, or is not Python; `name` is its name in the spec.
    """
    try:
        return ast.parse(path.read_text(encoding="utf-8"), filename=name)
    except FileNotFoundError:
        raise UserError(f"workload: {name}: no such file ({RELATIVE})") from None
    except OSError as error:
        raise UserError(f"workload: {name}: cannot be read: {error.strerror}") from None
    except SyntaxError as error:
        place = f"{name}:{error.lineno}" if error.lineno else name
        raise UserError(f"workload: {place}: syntax error: {error.msg}") from None
    except ValueError as error:
        raise UserError(f"workload: {name}: is not Python text: {error}") from None


def helpers(path: Path, root: Path | None = None) -> list[Path]:
    """Modules beside a workload file, or in `root`, that it imports, directly or indirectly: files and package folders.

    Imports inside functions count; modules of the standard library do not.

    Args:
        root: that of the spec's `code`, which is searched after the file's folder.
    """
    folders, found, to_read = _folders(path, root), set[Path](), [path]
    while to_read:
        here = to_read.pop()
        for name in sorted({module for module, _ in _imports(ast.walk(parse(here, str(here))))}):
            module = _beside(folders, name)
            if module is not None and module not in found and module != path:
                found.add(module)
                to_read += _python(module)
    return sorted(found)


def files_of(module: Path) -> list[Path]:
    """The files of a module: itself, or all files in a package's folder, data included."""
    if not module.is_dir():
        return [module]
    return sorted(path for path in module.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def digests(path: Path) -> dict[str, str]:
    """SHA-256 of the file and of each of its `helpers`, by name.

    Raises:
        OSError, UserError: a file cannot be read, or is not Python.
    """
    of_file = {path.name: _sha256(path)}
    return of_file | {module.name: _sha256(module) for module in helpers(path)}


def combined(digests: Mapping[str, str]) -> str:
    """Combines the digests into one SHA-256; for a single file its own."""
    return next(iter(digests.values())) if len(digests) == 1 else _of_all(digests)


def changed(path: Path, before: Mapping[str, str]) -> list[str]:
    """Names of the modules that were edited, removed or added since `digests` returned `before`.

    Raises:
        OSError, UserError: as `digests`, if a file changes meanwhile.
    """

    def differs(name: str) -> bool:
        try:
            return _sha256(path.parent / name) != before[name]
        except OSError:
            return True

    # An edited file may no longer be valid Python, so imports are read only if no file was edited.
    return [name for name in before if differs(name)] or [name for name in digests(path) if name not in before]


def _sha256(module: Path) -> str:
    """SHA-256 of a file, or of a package's files with their names."""
    if not module.is_dir():
        return hashlib.sha256(module.read_bytes()).hexdigest()
    return _of_all({file.relative_to(module).as_posix(): _sha256(file) for file in files_of(module)})


def _of_all(digests: Mapping[str, str]) -> str:
    return hashlib.sha256("".join(f"{sha256}  {name}\n" for name, sha256 in digests.items()).encode()).hexdigest()


def _python(module: Path) -> list[Path]:
    return [path for path in files_of(module) if path.suffix == ".py"]


def _folders(path: Path, root: Path | None) -> list[Path]:
    return [path.parent] if root in (None, path.parent.absolute()) else [path.parent, Path(root)]


def _own(path: Path, root: Path | None) -> list[Path]:
    return [path, *(file for module in helpers(path, root) for file in _python(module))]


def left_behind(path: Path, name: str, root: Path | None = None) -> list[str]:
    """A warning for each module imported from the working directory: a child searches it, but a container has only
    the files beside the workload."""
    return [
        f"workload: {called}:{line}: import {module}: is in the working directory, which containers do not have; put "
        f"it beside {path.name}"
        for file in _own(path, root)
        for called in [name if file == path else str(file)]
        for module, line in _imports(ast.walk(parse(file, called)))
        if module != "trainer" and not _beside(_folders(path, root), module) and _beside([Path.cwd()], module)
    ]


def missing_imports(path: Path, name: str, root: Path | None = None) -> list[str]:
    """An error for each missing module that the file, or one beside it, imports at its top level.

    Imports within a function, `try` or `if` are not checked: they may be optional.
    """
    problems = []
    for file in _own(path, root):
        called = name if file == path else str(file)
        top = parse(file, called).body
        problems += [
            f"workload: {called}:{line}: import {module}: no such module; pip install it, or put {module}.py beside "
            f"{path.name}"
            for module, line in _imports(iter(top))
            if not _is_here([*_folders(path, root), Path.cwd()], module)
        ]
        if file == path:
            problems += [
                f"workload: {called}:{n.lineno}: a relative import, but the file is not in a package; remove the dots"
                for n in top
                if isinstance(n, ast.ImportFrom) and n.level
            ]
    return problems


def _is_here(folders: Sequence[Path], module: str) -> bool:
    # The child also looks in the working directory (trainer/workloads/load.py).
    if module in sys.modules or any((folder / module).is_dir() for folder in folders) or _beside(folders, module):
        return True
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return True  # It exists; a run reports why it cannot be imported.


def runs_code(path: Path, root: Path | None = None) -> bool:
    """Whether importing the file, or a module beside it, may run TensorFlow: whether its top level calls anything but
    the standard library and NumPy. Decorators do not count: what they wrap runs later."""
    return any(_calls_out(parse(file, str(file))) for file in _own(path, root))


def _calls_out(tree: ast.Module) -> bool:
    top = list(_top(tree))
    quiet, loud = set(dir(builtins)), {"__import__"}
    for node in top:
        if isinstance(node, ast.Import):
            for alias in node.names:
                (quiet if _first(alias.name) in _QUIET else loud).add(alias.asname or _first(alias.name))
        elif isinstance(node, ast.ImportFrom):
            known = node.level == 0 and _first(node.module or "") in _QUIET
            (quiet if known else loud).update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            loud.add(node.name)
        elif isinstance(node, _BINDERS):
            # An alias, such as constant = tf.constant.
            names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
            loaded = (n.id for n in names if isinstance(n.ctx, ast.Load))
            (quiet if loud.isdisjoint(loaded) else loud).update(n.id for n in names if isinstance(n.ctx, ast.Store))
    return any(_root(node.func) not in quiet - loud for node in top if isinstance(node, ast.Call))


def _top(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes that run when the module is imported."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        children: list[ast.AST] = [node.args]
    else:
        decorators = node.decorator_list if isinstance(node, ast.ClassDef) else []
        children = [child for child in ast.iter_child_nodes(node) if child not in decorators]
    for child in children:
        yield child
        yield from _top(child)


def _root(node: ast.expr) -> str | None:
    """The first name of a dotted or chained expression; for a literal, the name of its type."""
    while isinstance(node, (ast.Attribute, ast.Call, ast.Subscript)):
        node = node.func if isinstance(node, ast.Call) else node.value
    if isinstance(node, (ast.Constant, ast.JoinedStr)):
        return "str"
    return node.id if isinstance(node, ast.Name) else None


def _imports(nodes: Iterator[ast.AST]) -> Iterator[tuple[str, int]]:
    """First names of the modules that are imported, with their lines; relative imports stay in their package."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((_first(alias.name), node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield _first(node.module), node.lineno


def _beside(folders: Sequence[Path], name: str) -> Path | None:
    if name in sys.stdlib_module_names:
        return None
    return next(filter(None, (_within(folder, name) for folder in folders)), None)


def _within(folder: Path, name: str) -> Path | None:
    if (folder / name / "__init__.py").is_file():
        return folder / name
    if (file := folder / f"{name}.py").is_file():
        return file
    # A folder without __init__.py, which Python imports only if no entry of its path has a module of this name.
    return folder / name if any((folder / name).rglob("*.py")) and not _is_installed(name) else None


def _is_installed(name: str) -> bool:
    """Whether an installed module of this name takes precedence over such a folder, which itself has no origin."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        return True
    return spec is not None and spec.origin is not None


def _first(name: str) -> str:
    return name.partition(".")[0]
