"""Affinity by the labels that the operator gives to pods selects the pods of a job here."""

from __future__ import annotations

from typing import Any

import yaml

from tests.unit.tfjob.documents import convert, job, replica
from trainer.job.load import build
from trainer.targets.kubernetes.render import render

PREFIX = "training.kubeflow.org/"
OURS = {"app.kubernetes.io/instance": "j", "app.kubernetes.io/component": "worker"}


def affinity(selector: dict[str, Any]) -> dict[str, Any]:
    term = {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def converted(selector: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    raw, notes = convert(job(Worker=replica(pod={"affinity": affinity(selector)})))
    return raw, [note for note in notes if "affinity" in note]


def test_labels_of_operators_become_those_of_pods_here() -> None:
    for labels in (
        {f"{PREFIX}job-name": "j", f"{PREFIX}replica-type": "Worker"},
        {"tf-job-name": "j", "tf-replica-type": "worker"},
        {"tf_job_name": "j", "replica-type": "worker"},
    ):
        raw, notes = converted({"matchLabels": labels})
        assert raw["kubernetes"]["affinity"] == affinity({"matchLabels": OURS})
        assert notes == []
    (rendered,) = [each for each in yaml.safe_load_all(render(build(raw), "x")) if each["kind"] == "Job"]
    assert OURS.items() <= rendered["spec"]["template"]["metadata"]["labels"].items()


def test_expressions_and_masters() -> None:
    types = {"key": f"{PREFIX}replica-type", "operator": "In", "values": ["PS", "Master"]}
    index = {"key": f"{PREFIX}replica-index", "operator": "Exists"}
    raw, notes = converted({"matchExpressions": [types, index]})
    ours = [
        {"key": "app.kubernetes.io/component", "operator": "In", "values": ["ps", "chief"]},
        {"key": "batch.kubernetes.io/job-completion-index", "operator": "Exists"},
    ]
    assert raw["kubernetes"]["affinity"] == affinity({"matchExpressions": ours})
    assert notes == []


def test_a_label_of_the_operator_that_no_pod_has_is_named_and_others_stay() -> None:
    labels = {f"{PREFIX}job-role": "master", "team": "vision"}
    raw, notes = converted({"matchLabels": labels})
    assert raw["kubernetes"]["affinity"] == affinity({"matchLabels": labels})
    where = "spec.tfReplicaSpecs.Worker.template.spec.affinity"
    why = "is a label of the operator that no pod has here; correct kubernetes.affinity"
    assert notes == [f"{where}: '{PREFIX}job-role': {why}"]


def test_the_name_of_a_job_may_be_that_of_another_kind() -> None:
    raw, notes = converted({"matchExpressions": [{"key": "job-name", "operator": "In", "values": ["j"]}]})
    ours = {"key": "app.kubernetes.io/instance", "operator": "In", "values": ["j"]}
    assert raw["kubernetes"]["affinity"] == affinity({"matchExpressions": [ours]})
    (note,) = notes
    assert "'job-name': is taken for the operator's label, and is app.kubernetes.io/instance here" in note
