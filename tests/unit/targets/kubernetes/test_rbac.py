"""k8s/rbac/trainer.yaml: the roles have what the code asks for, and nothing else."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from trainer.targets.kubernetes import evidence, lifecycle
from trainer.targets.kubernetes.api_server import _PATHS, EXTENSIONS

ROOT = Path(__file__).parents[4]
CODE = ROOT / "trainer/targets/kubernetes"
# What each method of ApiServer asks for: of a kind of objects, or of a part of pods.
VERBS = {
    "read": {"get"}, "look": {"get"}, "keys": {"get"}, "has": {"get"}, "items": {"list"}, "readable": {"list"},
    "_list": {"list"}, "apply": {"create", "patch"}, "create": {"create"}, "check": {"create"}, "delete": {"delete"},
    "may_delete": {"delete"}, "delete_all": {"deletecollection"},
}  # fmt: skip
PARTS = {"log": "pods/log", "raw_log": "pods/log", "execute": "pods/exec", "forward": "pods/portforward"}
STREAMS = {"pods/log": {"get"}, "pods/exec": {"get", "create"}, "pods/portforward": {"get", "create"}}
# The kinds where the code names a variable: by module and function.
APPLIED = {*lifecycle.KINDS, "PersistentVolumeClaim"}
VARIABLE = {
    ("evidence", "_objects"): {*evidence.KINDS},
    ("lifecycle", "submit", "apply"): APPLIED,
    ("lifecycle", "submit", "create"): {"Secret"},
    ("lifecycle", "submit", "check"): {"Job"},  # the parts of a JobSet
    ("lifecycle", "_create_all", "apply"): APPLIED,
    ("lifecycle", "_create_all", "create"): {"Secret"},
    ("lifecycle", "_create_all", "delete"): {*APPLIED, "Secret"},
    ("parts", "missing"): {"ConfigMap", "Service", "NetworkPolicy"},
    ("taken", "require_own"): APPLIED,  # and the Secret, if the user may read it
    ("lifecycle", "delete"): APPLIED,
    ("lifecycle", "_listed"): APPLIED,
    ("lifecycle", "_delete_unlisted"): {*lifecycle.KINDS, "PersistentVolumeClaim"},
    ("lifecycle", "_require_values"): set[str](),  # where it may not read a Secret it believes that it is there
}
Right = tuple[str, str, str]
"""API group, resource, verb."""
OPTIONAL = {("report_secret", "missing", "has")}
"""Questions whose refusal is an answer too: that the Secret is there."""
EDITS = {"lifecycle", "advice", "report_secret", "taken"}
"""Modules of submit and delete."""


def rights(kind: str, verbs: set[str]) -> set[Right]:
    path = {**_PATHS, **EXTENSIONS}[kind].split("/")
    group = path[2] if path[1] == "apis" else ""
    return {(group, path[-1], verb) for verb in verbs}


def asked(module: Path) -> Iterator[set[Right]]:
    for function in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in ast.walk(function):
            if not (isinstance(node, ast.Call) and "server" in ast.unparse(node.func).split("."[0])[:-1]):
                continue
            method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if method in PARTS:
                part = PARTS[method]
                yield {("", part, verb) for verb in STREAMS[part]}
            elif method in VERBS and (module.stem, function.name, method) not in OPTIONAL:
                first = node.args[0]
                place = (module.stem, function.name)
                if isinstance(first, ast.Constant):
                    kinds = {str(first.value)}
                else:
                    kinds = VARIABLE[place] if place in VARIABLE else VARIABLE[(*place, method)]
                yield set[Right]().union(*(rights(kind, VERBS[method]) for kind in kinds))


@pytest.fixture(scope="module")
def needed() -> tuple[set[Right], set[Right]]:
    """What looking at jobs needs, and what submit and delete need."""
    modules = [path for path in CODE.glob("*.py") if path.name != "api_server.py"]
    looking = set[Right]().union(*(each for path in modules if path.stem not in EDITS for each in asked(path)))
    editing = set[Right]().union(*(each for path in modules if path.stem in EDITS for each in asked(path)))
    listed = set[Right]().union(*(rights(kind, {"list"}) for kind in APPLIED))  # lifecycle._listed
    return looking, editing | listed


def granted() -> dict[str, set[Right]]:
    documents = yaml.safe_load_all((ROOT / "k8s/rbac/trainer.yaml").read_text(encoding="utf-8"))
    return {
        each["metadata"]["name"]: {
            (group, resource, verb)
            for rule in each["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }
        for each in documents
    }


def of_core(found: set[Right]) -> set[Right]:
    extensions = {path.split("/")[2] for path in EXTENSIONS.values()}
    return {each for each in found if each[0] not in extensions and each[1] != "nodes"}


def test_the_role_for_looking_has_what_that_needs_and_nothing_else(needed: tuple[set[Right], set[Right]]) -> None:
    assert granted()["trainer-view"] == of_core(needed[0])


def test_the_role_for_submit_and_delete_adds_what_these_need(needed: tuple[set[Right], set[Right]]) -> None:
    roles = granted()
    assert roles["trainer-edit"] == of_core(needed[1]) - roles["trainer-view"]


def test_the_roles_for_extensions_and_nodes_have_the_rest(needed: tuple[set[Right], set[Right]]) -> None:
    roles, rest = granted(), (needed[0] | needed[1]) - of_core(needed[0] | needed[1])
    assert roles["trainer-extensions"] | roles["trainer-nodes"] == rest


def test_the_file_is_none_of_the_manifests_that_are_rendered() -> None:
    assert not any("rbac" in path.name for path in (ROOT / "k8s").glob("*.yaml"))
