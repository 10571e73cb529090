"""The layers of the package: imports only point down, and no module imports a package too heavy for its layer."""

import ast
import graphlib
import importlib.util
import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Each layer, and the layers below it. targets, supervisor, track and training are side by side.
BELOW: dict[str, set[str]] = {
    "cli": {
        "api",
        "targets",
        "supervisor",
        "track",
        "page",
        "debug",
        "protocol",
        "tfjob",
        "workloads",
        "job",
        "connections",
    },
    "api": {"targets", "debug", "protocol", "model_dir", "workloads", "job"},
    "targets": {"page", "debug", "protocol", "model_dir", "job", "host", "sockets", "connections"},
    "debug": {"protocol", "model_dir", "job", "host"},
    "supervisor": {
        "page",
        "debug",
        "protocol",
        "model_dir",
        "workloads",
        "job",
        "host",
        "sockets",
        "reporting",
        "stack_dump",
        "connections",
        "clocks",
        "ids",
    },
    "track": {"protocol", "model_dir", "job", "host", "reporting"},
    "training": {"protocol", "model_dir", "workloads", "job", "host", "sockets", "keras", "stack_dump"},
    "page": {"debug", "protocol", "model_dir", "job", "connections"},
    "protocol": {"model_dir", "job", "host", "reporting"},
    "model_dir": {"workloads", "job", "clocks", "ids"},
    "tfjob": {"job"},
    "workloads": {"job"},
    "connections": {"sockets"},
    "sockets": {"host", "job"},
    "host": {"job"},
    "clocks": set(),
    "ids": set(),
    "job": set(),
    # For the user's own program, in an environment that may have no other package.
    "keras": {"reporting"},
    "reporting": {"stack_dump", "job"},
    "stack_dump": {"job"},
}
TENSORFLOW, RENDERERS = {"tensorflow", "keras", "h5py"}, {"jinja2", "docker", "kubernetes"}
# The entries of a layer that is a hall with rooms: each imports only those before it.
ROOMS: dict[str, tuple[str, ...]] = {
    "supervisor": (
        "children", "control_port", "rendezvous", "preflight", "restart_guard", "task", "metrics", "outside", "views",
        "chief", "main", "probe",
    ),
    "training": (
        "private", "runtime", "inputs", "exchange", "task", "failure", "model", "weights", "callbacks", "outputs",
        "loops", "main",
    ),
}  # fmt: skip
MOST_ENTRIES = 12
"""Modules and rooms on each level of a hall, so that one look at a folder is enough."""
# What no file of a layer imports, not even within a function.
NEVER = {
    "cli": TENSORFLOW,
    "api": TENSORFLOW | {"aiohttp"},
    "targets": TENSORFLOW,
    "debug": TENSORFLOW | RENDERERS | {"aiohttp"},
    "supervisor": TENSORFLOW | RENDERERS,
    "track": TENSORFLOW | RENDERERS | {"aiohttp"},
    "training": RENDERERS | {"aiohttp"},
    "page": TENSORFLOW | RENDERERS,
    "protocol": TENSORFLOW | RENDERERS | {"aiohttp"},
    "model_dir": TENSORFLOW | RENDERERS | {"aiohttp"},
    "tfjob": TENSORFLOW | RENDERERS | {"aiohttp"},
    "workloads": RENDERERS | {"aiohttp"},
    "connections": TENSORFLOW | RENDERERS | {"aiohttp", "rich"},
    "sockets": TENSORFLOW | RENDERERS | {"aiohttp", "rich"},
    "host": TENSORFLOW | RENDERERS | {"aiohttp", "rich"},
    "clocks": TENSORFLOW | RENDERERS | {"aiohttp", "rich"},
    "ids": TENSORFLOW | RENDERERS | {"aiohttp", "rich"},
    "job": TENSORFLOW | RENDERERS | {"aiohttp", "rich"},
    "keras": TENSORFLOW | RENDERERS | {"aiohttp", "rich", "pydantic", "yaml", "numpy"},
    "reporting": TENSORFLOW | RENDERERS | {"aiohttp", "rich", "pydantic", "yaml", "numpy"},
    "stack_dump": TENSORFLOW | RENDERERS | {"aiohttp", "rich", "pydantic", "yaml", "numpy"},
}
# What is not there after a module and all it imports were imported, in a fresh interpreter. Only training and what it
# alone imports needs numpy: the supervisor runs beside TensorFlows that need another numpy than trainer's own, or none.
ABSENT = {
    "trainer.job": NEVER["job"] | {"numpy"},
    "trainer.host": NEVER["host"] | {"numpy"},
    "trainer.page": NEVER["page"] | {"numpy"},
    "trainer.protocol": NEVER["protocol"] | {"numpy"},
    "trainer.model_dir": NEVER["model_dir"] | {"numpy"},
    "trainer.tfjob": NEVER["tfjob"] | {"numpy"},
    "trainer.debug": NEVER["debug"] | {"numpy"},
    "trainer.targets": TENSORFLOW | {"numpy"},
    "trainer.api": TENSORFLOW | RENDERERS | {"numpy", "rich", "aiohttp", "IPython", "asyncio"},
    "trainer.cli": TENSORFLOW | {"numpy"},
    "trainer.track": TENSORFLOW | RENDERERS | {"aiohttp"},
    "trainer.workloads.check": NEVER["workloads"] | TENSORFLOW | {"numpy"},
    "trainer.supervisor": TENSORFLOW | RENDERERS | {"numpy"},
    "trainer.keras": NEVER["keras"],
    "trainer.reporting": NEVER["reporting"],
}


def imported(source: str, module: str) -> Iterator[str]:
    """Full names of all that a module imports, wherever it does so; `from a import b` is a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = [*module.split(".")[: -node.level], *filter(None, [node.module])] if node.level else [node.module]
            yield from (".".join([*map(str, base), alias.name]) for alias in node.names)


def complaints(source: str, module: str) -> list[str]:
    layer = module.split(".")[1]
    layer = {"__main__": "cli", "__init__": "job"}.get(layer, layer)  # trainer/__init__.py is part of every layer
    found = []
    for name in imported(source, module):
        top, *rest = name.split(".")
        upward = top == "trainer" and rest and rest[0] in BELOW and rest[0] not in BELOW[layer] | {layer}
        if upward or top in NEVER[layer]:
            found.append(f"{module} imports {name}")
    return found


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


FILES = sorted((ROOT / "trainer").rglob("*.py"))


def test_imports_only_point_down() -> None:
    assert [each for path in FILES for each in complaints(path.read_text(encoding="utf-8"), module_of(path))] == []


def test_one_module_imports_mlflow() -> None:
    found = [
        module_of(path)
        for path in FILES
        if any(name.split(".")[0] == "mlflow" for name in imported(path.read_text(encoding="utf-8"), module_of(path)))
    ]
    assert found == ["trainer.track.server"]


@pytest.mark.parametrize("hall", ROOMS)
def test_a_room_imports_only_those_before_it(hall: str) -> None:
    rooms = ROOMS[hall]
    above = [
        f"{module} imports {name}"
        for path in FILES
        if (module := module_of(path)).startswith(f"trainer.{hall}.") and module.split(".")[2] in rooms
        for name in imported(path.read_text(encoding="utf-8"), module)
        if name.startswith(f"trainer.{hall}.") and rooms.index(name.split(".")[2]) > rooms.index(module.split(".")[2])
    ]
    assert above == []


@pytest.mark.parametrize("hall", ROOMS)
def test_a_hall_has_few_entries_on_each_level(hall: str) -> None:
    top = ROOT / "trainer" / hall
    levels = [top, *(path.parent for path in top.rglob("__init__.py"))]
    entries = {
        str(level.relative_to(ROOT)): sorted(
            each.name
            for each in level.iterdir()
            if each.name != "__init__.py" and (each.suffix == ".py" or any(each.rglob("*.py")))
        )
        for level in levels
    }
    assert {each.split(".")[0] for each in entries[f"trainer/{hall}"]} == {*ROOMS[hall]}
    assert {level: names for level, names in entries.items() if len(names) > MOST_ENTRIES} == {}


def test_the_map_of_the_tree_names_files_that_exist_and_every_room() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(trainer[\w/]*(?:/|\.py))`", text))
    assert len(named) > 40
    assert [each for each in sorted(named) if not (ROOT / each).exists()] == []
    entries = {each for hall in ROOMS for each in ROOMS[hall]}
    assert [each for each in sorted(entries) if f"`{each}`" not in text and f"`{each}.py`" not in text] == []


NEWER_THAN_3_10 = re.compile(
    r"\b(?:typing\.(?:Never|NotRequired|Required|Self|LiteralString|Unpack|assert_\w+|override|reveal_type)|tomllib"
    r"|enum\.StrEnum|datetime\.UTC|asyncio\.(?:timeout|timeout_at|TaskGroup|Runner)|contextlib\.chdir)\b"
)


def test_nothing_is_taken_from_the_standard_library_that_python_3_10_lacks() -> None:
    """As far as imports and full names show; no other test runs on the oldest Python that pyproject.toml allows."""
    found = []
    for path in FILES:
        source = path.read_text(encoding="utf-8")
        names = [*imported(source, module_of(path)), *re.findall(r"\w+\.\w+", source)]
        found += [f"{module_of(path)}: {name}" for name in names if NEWER_THAN_3_10.match(name)]
    assert found == []


def test_every_file_is_in_a_known_layer() -> None:
    assert {module_of(path).split(".")[1] for path in FILES} <= {*BELOW, "__init__", "__main__"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports within functions and for types alone count too."""
    modules = {module_of(path).removesuffix(".__init__"): path for path in FILES}
    below = {
        module: {part for name in imported(path.read_text(encoding="utf-8"), module_of(path)) for part in parts(name)}
        for module, path in modules.items()
    }
    graph = {module: names & modules.keys() - {module, "trainer"} for module, names in below.items()}
    assert len(list(graphlib.TopologicalSorter(graph).static_order())) >= len(FILES) - 1


def parts(name: str) -> tuple[str, str]:
    """What `from a.b import c` imports, a.b.c, is the module a.b.c or something in the module a.b."""
    return name, name.rpartition(".")[0]


def test_an_import_that_points_up_is_found_wherever_it_is() -> None:
    for module, source, name in (
        ("trainer.job.x", "def f():\n    from trainer import supervisor", "trainer.supervisor"),
        ("trainer.job.x", "from ..training.main import main", "trainer.training.main.main"),
        ("trainer.supervisor.x", "if TYPE_CHECKING:\n    from trainer import targets", "trainer.targets"),
        ("trainer.training.x", "import os, aiohttp.web", "aiohttp.web"),
        ("trainer.__init__", "from .training import main", "trainer.training.main"),
    ):
        assert complaints(source, module) == [f"{module} imports {name}"]
    assert complaints("import rich\nfrom trainer.targets import x\nfrom .names import y", "trainer.cli.x") == []


# Imports a module, and all modules within it if it is a package, and prints the names of all that then is loaded.
IMPORT_ALL = """
import importlib, json, pkgutil, sys
module = importlib.import_module(sys.argv[1])
for each in pkgutil.walk_packages(getattr(module, "__path__", []), sys.argv[1] + "."):
    if not each.name.endswith(".__main__"):
        importlib.import_module(each.name)
print(json.dumps(sorted(sys.modules)))
"""


def loaded_with(module: str) -> set[str]:
    """Top-level packages that a fresh interpreter has loaded after it imported the module."""
    command = [sys.executable, "-c", IMPORT_ALL, module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in json.loads(done.stdout)}


@pytest.mark.parametrize("module", ABSENT)
def test_a_fresh_interpreter_loads_nothing_heavy(module: str) -> None:
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"there is no {module} yet")
    loaded = loaded_with(module)
    assert "trainer" in loaded
    assert loaded & ABSENT[module] == set()


# Imports what a task needs until its job has formed, and prints the packages that then are loaded, the number of
# certificates that TLS has read, and the variable that names their file.
START = """
import gc, json, os, ssl, sys
from trainer.supervisor import main
main._import_rest()
contexts = [each for each in gc.get_objects() if isinstance(each, ssl.SSLContext)]
certificates = sum(each.cert_store_stats()["x509"] for each in contexts)
print(json.dumps([sorted(sys.modules), certificates, os.environ["SSL_CERT_FILE"]]))
"""
LATER = {"yaml", "prometheus_client", "rich", "jinja2", "numpy"}


def test_a_task_starts_without_what_it_needs_later_or_never() -> None:
    certificates = ssl.get_default_verify_paths().cafile or ""
    environ = {**os.environ, "SSL_CERT_FILE": certificates}
    done = subprocess.run(
        [sys.executable, "-c", START], cwd=ROOT, env=environ, capture_output=True, text=True, check=True
    )
    loaded, read, named = json.loads(done.stdout)
    assert {"aiohttp", "trainer.supervisor.chief.chief", "trainer.supervisor.control_port.server"} <= set(loaded)
    assert LATER & {name.partition(".")[0] for name in loaded} == set()
    assert (read, named) == (0, certificates)


# Types. -------------------------------------------------------------------------------------------

MOST_ANY = 60
"""What stays is on tensors, for which trainer/workloads/types.py has names, and on JSON before it is checked."""


def test_any_is_rare() -> None:
    """A type checker finds nothing wrong with what is Any: use a real type, or `object` and isinstance."""
    found = {module_of(path): len(re.findall(r"\bAny\b", path.read_text(encoding="utf-8"))) for path in FILES}
    assert sum(found.values()) <= MOST_ANY, sorted(found.items(), key=lambda item: -item[1])[:10]
