"""What a TFJob says of its pods: volumes, labels, DNS, and what has no setting."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.tfjob.documents import LEFT, WORKER, convert, job, replica, spec_of


def test_the_dns_of_the_nodes_is_left_out() -> None:
    raw, notes = convert(job(Worker=replica(pod={"dnsPolicy": "Default"})))
    assert f"{WORKER}.dnsPolicy: 'Default': {LEFT}tasks find each other by the DNS of the cluster" in notes
    assert "pod" not in raw.get("kubernetes", {})
    raw, _ = convert(job(Worker=replica(pod={"dnsPolicy": "None"})))
    assert raw["kubernetes"]["pod"] == {"spec": {"dnsPolicy": "None"}}


def mounted(volume: Any, **mount: Any) -> dict[str, Any]:
    mounts = [{"name": "v", "mountPath": "/v", **mount}]
    return replica(volumeMounts=mounts, pod={"volumes": [{"name": "v", **volume}]})


CLAIM = {"persistentVolumeClaim": {"claimName": "c"}}


@pytest.mark.parametrize(
    ("types", "volume"),
    [
        ({"Worker": mounted(CLAIM)}, {"claim": "c"}),
        ({"Worker": mounted(CLAIM, readOnly=True), "Chief": mounted(CLAIM, subPath="x")}, {"claim": "c"}),
        ({"Worker": mounted(CLAIM), "PS": replica()}, {"empty_dir": True}),
        ({"Worker": mounted(CLAIM, readOnly=True)}, {"empty_dir": True}),
        ({"Worker": mounted({"persistentVolumeClaim": {"claimName": "c", "readOnly": True}})}, {"empty_dir": True}),
        ({"Worker": mounted({"hostPath": {"path": "/f"}})}, {"empty_dir": True}),
    ],
)
def test_model_dir_is_in_a_claim_that_all_tasks_mount_and_one_writes(types: Any, volume: Any) -> None:
    assert spec_of(job(**types))["kubernetes"]["volume"] == volume


def test_labels_and_annotations_of_objects_and_pods() -> None:
    def labelled(labels: Any, annotations: Any) -> dict[str, Any]:
        template = replica()["template"]
        return {"template": {**template, "metadata": {"labels": labels, "annotations": annotations}}}

    ours = {"app.kubernetes.io/name": "x"}
    document = job(
        Worker=labelled({"a": "1", "b": "1", "c": "1", **ours}, {"x": "1", "y": "1"}),
        PS=labelled({"a": "1", "b": "2", "c": "1"}, {"x": "1"}),
    )
    document["metadata"]["labels"] = {"c": "2", "d": "1"}
    raw, notes = convert(document)
    assert raw["kubernetes"]["labels"] == {"c": "2", "d": "1", "a": "1"}
    assert raw["kubernetes"]["annotations"] == {"x": "1"}
    assert raw["tasks"]["worker"]["kubernetes"] == {"labels": {"b": "1", "c": "1"}, "annotations": {"y": "1"}}
    assert raw["tasks"]["ps"]["kubernetes"] == {"labels": {"b": "2", "c": "1"}}
    assert [note for note in notes if f"{LEFT}trainer sets this label itself" in note]


def test_what_has_no_setting_is_a_patch_of_the_pods() -> None:
    """For all tasks if it is the same for all, otherwise for its type."""
    dns = {"options": [{"name": "ndots", "value": "1"}]}
    worker = replica(resources={"limits": {"cpu": 2, "amd.com/gpu": 1, "rdma/hca": 1}})
    ps = replica()
    for each in (worker, ps):
        each["template"]["spec"]["dnsConfig"] = dns
    worker["template"]["spec"]["runtimeClassName"] = "nvidia"
    raw, notes = convert(job(Worker=worker, PS=ps))
    assert raw["kubernetes"]["pod"] == {"spec": {"dnsConfig": dns}}
    extra = [{"name": "task", "resources": {"limits": {"rdma/hca": 1}}}]
    assert raw["tasks"]["worker"]["kubernetes"]["pod"] == {"spec": {"runtimeClassName": "nvidia", "containers": extra}}
    assert not [note for note in notes if "is left out" in note]
