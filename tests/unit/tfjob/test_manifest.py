"""What no spec can be made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.tfjob.documents import CONTAINER, LEFT, TYPES, convert, job, replica
from trainer.job.errors import UserError
from trainer.tfjob import convert as tfjob

WORDS = (
    "a program needs its words; those of the image's ENTRYPOINT are not known here, `docker image inspect IMAGE` shows "
    "them; give them, as in --entrypoint 'python /opt/train.py'"
)


NO_CONTAINER = "must hold one named tensorflow, with an image"
HOST = f"{'n' * 60}-worker-0"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "kind: null: must be a TFJob"),
        ([1], "kind: [1]: must be a TFJob"),
        ({"kind": "PyTorchJob"}, "kind: 'PyTorchJob': must be a TFJob"),
        (
            {"kind": "TFJob", "apiVersion": "kubeflow.org/v1alpha1"},
            "apiVersion: 'kubeflow.org/v1alpha1': must be kubeflow.org/v1, v1beta2 or v1beta1",
        ),
        ({**job(), "spec": 3}, "spec: 3: must be a mapping"),
        ({**job(), "spec": None}, f"{TYPES}: []: must hold a Worker or a Chief, or nothing trains"),
        (job(PS=replica()), f'{TYPES}: ["PS"]: must hold a Worker or a Chief, or nothing trains'),
        (job(Launcher=replica()), f"{TYPES}: 'Launcher': must be Chief, Worker, PS, Evaluator, or Master for Chief"),
        (job(Chief=replica(), Master=replica()), f"{TYPES}: 'Master': is the type of Chief; keep one of them"),
        (job(Worker=None), f"{TYPES}.Worker.template.spec.containers: []: {NO_CONTAINER}"),
        (job(Worker=[]), f"{TYPES}.Worker: []: must be a mapping"),
        (
            job(Worker=replica(name="main")),
            f'{TYPES}.Worker.template.spec.containers: ["main"]: {NO_CONTAINER}',
        ),
        (
            job(Worker={"template": {"spec": {"containers": {}}}}),
            f"{TYPES}.Worker.template.spec.containers: {{}}: must be a list",
        ),
        (
            job(Worker={"template": {"spec": {"containers": [3]}}}),
            f"{TYPES}.Worker.template.spec.containers[#0]: 3: must be a mapping",
        ),
        (
            job(Worker={"replicas": "3", **replica()}),
            f"{TYPES}.Worker.replicas: '3': input should be a valid integer",
        ),
        (
            job(Worker=replica(), Evaluator={"replicas": 2, **replica()}),
            f"{TYPES}.Evaluator.replicas: 2: there is at most one evaluator; set 1",
        ),
        (
            job(Worker=replica(command=None)),
            f"{TYPES}.Worker.{CONTAINER}.command: null: {WORDS}",
        ),
        (
            job(Worker=replica(command=None, args=["--x"]), Chief=replica(), PS=replica(command=[], args=["--x"])),
            f'{TYPES}.{{Worker,PS}}.{CONTAINER}.args: ["--x"]: {WORDS}',
        ),
        (
            job(Worker=replica(command="python x.py")),
            f"{TYPES}.Worker.{CONTAINER}.command: 'python x.py': must be a list of texts",
        ),
        (
            job(Worker=replica(command=["x", "a\0b"])),
            f"{TYPES}.Worker.{CONTAINER}.command.1: 'a\\x00b': string should match pattern '^[^\\x00]*$'",
        ),
        (
            job(Worker=replica(resources={"limits": {"nvidia.com/gpu": "some"}})),
            f"{TYPES}.Worker.{CONTAINER}.resources.limits.nvidia.com/gpu: 'some': input should be a valid integer",
        ),
        (
            job(name="My_Job"),
            "metadata.name: 'My_Job': must be lower-case letters, digits and '-', "
            "from a letter to a letter or digit (RFC 1035)",
        ),
        (job(name=None), "metadata.name: null: is required"),
        (
            job(name="n" * 60),
            f"metadata.name: '{'n' * 60}': {HOST} would have 69 characters, DNS allows 63; shorten it by 6",
        ),
    ],
)
def test_what_no_spec_can_be_made_of(document: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        convert(document)
    assert caught.value.problems == (f"x.yaml: {message}",)


def test_an_entrypoint_that_no_container_needs() -> None:
    with pytest.raises(UserError) as caught:
        tfjob.convert(yaml.safe_dump(job()), "x.yaml", ["python"])
    assert str(caught.value) == 'x.yaml: --entrypoint: ["python"]: every container has a command; leave it out'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [", "x.yaml:1:5: not valid YAML: while parsing a flow node, expected the node content"),
        ("kind: TFJob\nkind: TFJob", "x.yaml:2:1: not valid YAML: key 'kind' is given twice"),
        ("a: .nan", "x.yaml: not valid YAML: Out of range float values are not JSON compliant"),
        ("a: &a [*a]", "x.yaml:1:4: has an alias of itself within; write the value"),
        ("", "x.yaml: kind: null: must be a TFJob"),
    ],
)
def test_text_that_is_no_manifest(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        tfjob.convert(text, "x.yaml")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_betas_are_read_as_v1_which_is_a_copy_of_them(version: str) -> None:
    raw, notes = convert({**job(), "apiVersion": f"kubeflow.org/{version}"})
    plain, without = convert(job())
    assert raw == plain
    assert set(notes) - set(without) == {
        f"apiVersion: 'kubeflow.org/{version}': is read as kubeflow.org/v1, which is a copy of it"
    }


def test_a_list_is_its_items() -> None:
    """As `kubectl get tfjobs -o yaml` and client libraries print it."""
    other = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}}
    raw, notes = convert({"apiVersion": "v1", "kind": "List", "items": [other, job("first"), job("second")]})
    assert raw == convert(job("first"))[0]
    left = f"{LEFT}only the first TFJob of a file becomes a spec"
    assert [note for note in notes if "document" in note] == [
        f"document 1, item 1: 'ConfigMap c': {left}", f"document 1, item 3: 'TFJob second': {left}",
    ]  # fmt: skip
    item = {key: value for key, value in job("first").items() if key not in ("kind", "apiVersion")}
    assert convert({"apiVersion": "kubeflow.org/v1", "kind": "TFJobList", "items": [item]})[0] == raw
    with pytest.raises(UserError, match="kind: null: must be a TFJob"):
        convert({"apiVersion": "v1", "kind": "List", "items": []})


def test_what_the_api_server_has_set_is_said_to_be_that() -> None:
    document = job()
    document["metadata"] |= {"uid": "x", "resourceVersion": "1", "managedFields": [{"manager": "kubectl"}]}
    added = set(convert(document)[1]) - set(convert(job())[1])
    assert len(added) == 3
    assert all(note.endswith(f"{LEFT}the API server has set it") for note in added)


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = str(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="cannot be read: No such file"):
        tfjob.convert_file(path)
