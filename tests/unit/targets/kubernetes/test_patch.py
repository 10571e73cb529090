"""kubernetes.pod: patches of the pod template, and what they may not change."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from trainer.job.errors import UserError
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.targets.kubernetes import merge
from trainer.targets.kubernetes import render as kubernetes


def spec(patch: dict[str, Any] | None = None, **more: Any) -> JobSpec:
    section = {"pod": patch or {}, **more.pop("kubernetes", {})}
    tasks = {"worker": 2, "ps": 1}
    return build({"name": "j", "strategy": "parameter_server", "tasks": tasks, "kubernetes": section, **more})


def templates(job: JobSpec) -> dict[str, Any]:
    found = yaml.safe_load_all(kubernetes.render(job, "trainer render"))
    return {each["metadata"]["name"]: each["spec"]["template"] for each in found if each["kind"] == "Job"}


def problems(job: JobSpec) -> list[str]:
    with pytest.raises(UserError) as caught:
        kubernetes.render(job, "trainer render")
    return list(caught.value.problems)


def of_task(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "task", **fields}]}}


def test_a_patch_reaches_every_pod_and_changes_nothing_else() -> None:
    alias = {"ip": "10.0.0.9", "hostnames": ["files"]}
    before, after = templates(spec()), templates(spec({"spec": {"hostAliases": [alias], "runtimeClassName": "nvidia"}}))
    assert after == {
        name: {**each, "spec": {**each["spec"], "hostAliases": [alias], "runtimeClassName": "nvidia"}}
        for name, each in without_spec(before, after).items()
    }


def without_spec(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """The templates with the name of the other ConfigMap, which holds the spec with the patch."""
    text = json.dumps(before)
    names = [
        next(e["valueFrom"]["configMapKeyRef"]["name"] for e in t["spec"]["containers"][0]["env"] if "valueFrom" in e
             and "configMapKeyRef" in e["valueFrom"])
        for t in (before["j-chief"], after["j-chief"])
    ]  # fmt: skip
    return dict(json.loads(text.replace(*names)))


def test_a_type_has_a_patch_of_its_own_after_that_of_the_job() -> None:
    job = spec(
        {"spec": {"schedulerName": "one", "dnsPolicy": "Default"}},
        tasks={"worker": {"replicas": 2, "kubernetes": {"pod": {"spec": {"schedulerName": "two"}}}}, "ps": 1},
    )
    found = {name: (t["spec"]["schedulerName"], t["spec"]["dnsPolicy"]) for name, t in templates(job).items()}
    assert found["j-worker"] == ("two", "Default")
    assert found["j-ps"] == ("one", "Default")


def test_items_of_lists_are_merged_by_kubernetes_keys() -> None:
    limits = {"limits": {"ephemeral-storage": "5Gi"}}
    patch = of_task(resources=limits, livenessProbe={"failureThreshold": 9})
    patch["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {"sizeLimit": "2Gi"}}]
    patch["spec"]["topologySpreadConstraints"] = [{"topologyKey": "kubernetes.io/hostname", "$patch": "delete"}]
    patch["metadata"] = {"annotations": {"a/b": "c"}}
    before, after = templates(spec())["j-worker"], templates(spec(patch))["j-worker"]
    (old,), (new,) = before["spec"]["containers"], after["spec"]["containers"]
    assert new["resources"] == {**old["resources"], **limits}
    assert new["livenessProbe"] == {**old["livenessProbe"], "failureThreshold": 9}
    assert {**new, "resources": 0, "livenessProbe": 0, "env": 0} == {
        **old,
        "resources": 0,
        "livenessProbe": 0,
        "env": 0,
    }
    volumes = [
        v if v["name"] != "tmp" else {"name": "tmp", "emptyDir": {"sizeLimit": "2Gi"}}
        for v in before["spec"]["volumes"]
    ]
    assert after["spec"]["volumes"] == volumes
    assert after["spec"]["topologySpreadConstraints"] == []
    assert after["metadata"] == {**before["metadata"], "annotations": {"a/b": "c"}}


def test_a_volume_keeps_one_source() -> None:
    memory, disk = {"name": "own", "emptyDir": {"medium": "Memory"}}, {"name": "own", "configMap": {"name": "c"}}
    patch = {"spec": {"volumes": [disk]}}
    found = templates(spec(patch, kubernetes={"volumes": [memory]}))["j-worker"]["spec"]["volumes"]
    assert [each for each in found if each["name"] == "own"] == [disk]


def test_the_keys_of_lists_are_those_of_the_published_api() -> None:
    """patchMergeKey in the OpenAPI document, of all that a pod template may hold."""
    folder = Path(kubernetes_validate.__file__).parent / "kubernetes-json-schema"
    newest = max(folder.glob("v*-local"), key=lambda path: [int(n) for n in path.name[1:-6].split(".")])
    document = json.loads((newest / "_definitions.json").read_text())
    kinds = document.get("$defs") or document["definitions"]
    keys, seen = dict[str, str](), set[str]()

    def walk(kind: str) -> None:
        if kind in seen:
            return
        seen.add(kind)
        for name, field in kinds[kind].get("properties", {}).items():
            if key := field.get("x-kubernetes-patch-merge-key"):
                assert keys.setdefault(name, key) == key
            for reference in (field, field.get("items", {}), field.get("additionalProperties", {})):
                if isinstance(reference, dict) and "$ref" in reference:
                    walk(reference["$ref"].rpartition("/")[2])

    walk(next(kind for kind in kinds if kind.endswith("api.core.v1.PodTemplateSpec")))
    assert keys == merge.MERGED_BY


@pytest.mark.parametrize(
    ("patch", "problem"),
    [
        ({"spec": {"hostAlias": []}}, "spec.hostAlias: []: PodSpec in Kubernetes has no such field; did you"),
        ({"sepc": {}}, "sepc: {}: PodTemplateSpec in Kubernetes has no such field; did you mean spec?"),
        ({"spec": {"priority": "high"}}, "spec.priority: 'high': must be a whole number"),
        ({"spec": {"hostAliases": {"ip": "1"}}}, 'spec.hostAliases: {"ip": "1"}: must be a list'),
        ({"spec": {"hostAliases": [{}]}}, "spec.hostAliases[0]: {}: needs ip, by which Kubernetes merges hostAliases"),
        ({"spec": []}, "spec: []: must be a mapping of "),
        ({"spec": {"$patch": "replace"}}, "spec.$patch: 'replace': must be delete, in an item of a list"),
        (of_task(resources={"limits": {"cpu": True}}), "spec.containers[task].resources.limits.cpu: true: must be "),
        (of_task(image="x"), "spec.containers[task].image: 'x': use image"),
        (of_task(**{"$patch": "delete"}), "spec.containers[task].$patch: 'delete': is the task itself; remove it"),
        (of_task(env=[{"name": "TF_CONFIG", "value": "x"}]), "spec.containers[task].env[TF_CONFIG].name: "),
        ({"spec": {"containers": [{"name": "more", "image": "x"}]}}, "spec.containers[more].name: 'more': use kub"),
        ({"spec": {"initContainers": [{"name": "more", "image": "x"}]}}, "spec.initContainers[more]: use kubernet"),
        ({"spec": {"tolerations": []}}, "spec.tolerations: []: use kubernetes.tolerations"),
        ({"spec": {"restartPolicy": "Always"}}, "spec.restartPolicy: 'Always': the Job replaces pods by their"),
        ({"spec": {"volumes": None}}, "spec.volumes: null: removes what the tasks need; name single items"),
        ({"spec": {"volumes": [{"name": "runs", "emptyDir": {}}]}}, "spec.volumes[runs].name: 'runs': trainer has a"),
        ({"spec": None}, "spec: null: "),
        ({"metadata": {"labels": None}}, "metadata.labels: null: removes what the tasks need; name single items"),
        ({"metadata": {"labels": {"app.kubernetes.io/instance": "k"}}}, "metadata.labels.app.kubernetes.io/instance: "),
        ({"metadata": {"name": "k"}}, "metadata.name: 'k': the Job gives pods their metadata, besides la"),
    ],
)  # fmt: skip
def test_what_a_patch_may_not_name(patch: dict[str, Any], problem: str) -> None:
    found = problems(spec(patch))
    assert found[0].removeprefix("kubernetes.pod").lstrip(".: ").startswith(problem)
    assert not any("\n" in each for each in found)


@pytest.mark.parametrize(
    ("patch", "path"),
    [
        ({"spec": {"hostNetwork": True}}, "spec.hostNetwork"),
        ({"spec": {"automountServiceAccountToken": None}}, "spec.automountServiceAccountToken"),
        ({"spec": {"securityContext": {"runAsUser": 0}}}, "spec.securityContext.runAsUser"),
        ({"spec": {"securityContext": {"seccompProfile": None}}}, "spec.securityContext.seccompProfile.type"),
        (of_task(securityContext={"readOnlyRootFilesystem": False}),
         "spec.containers[task].securityContext.readOnlyRootFilesystem"),
        (of_task(securityContext={"privileged": True}), "spec.containers[task].securityContext.privileged"),
    ],
)  # fmt: skip
def test_a_protection_is_given_up_only_if_the_spec_names_it(patch: dict[str, Any], path: str) -> None:
    (found,) = problems(spec(patch))
    assert f": {path}: " in found
    assert found.endswith(f"if the job needs that, set kubernetes.unsafe: [{path}]")
    job = spec(patch, kubernetes={"unsafe": [path]})
    first = kubernetes.render(job, "trainer render").partition("---")[0]
    assert f"by kubernetes.unsafe: {path}." in first
    assert kubernetes.warnings(job) == [f"kubernetes.unsafe: {path}: kubernetes.pod gives up this protection"]


def test_a_whole_security_context_cannot_be_removed() -> None:
    assert len(problems(spec({"spec": {"securityContext": None}}))) == 5
    assert len(problems(spec(of_task(securityContext=None)))) == 3


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"securityContext": {"fsGroupChangePolicy": "OnRootMismatch", "supplementalGroups": [4]}}},
        {"spec": {"hostNetwork": False, "automountServiceAccountToken": False}},
    ],
)
def test_what_takes_no_protection_needs_no_leave(patch: dict[str, Any]) -> None:
    kubernetes.render(spec(patch), "trainer render")


def test_leave_for_nothing_is_refused() -> None:
    (found,) = problems(spec({"spec": {"schedulerName": "s"}}, kubernetes={"unsafe": ["spec.hostNetwork"]}))
    assert found == "kubernetes.unsafe: 'spec.hostNetwork': no patch in kubernetes.pod has this path; remove it"


def test_the_level_of_pod_security_is_that_of_the_patch() -> None:
    job = spec({"spec": {"hostNetwork": True}}, kubernetes={"unsafe": ["spec.hostNetwork"]})
    assert 'must admit Pod Security "privileged", for kubernetes.unsafe: spec.hostNetwork.' in kubernetes.render(
        job, "x"
    )
