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
        {"spec": {"schedulerName": "one", "dnsPolicy": "None"}},
        tasks={"worker": {"replicas": 2, "kubernetes": {"pod": {"spec": {"schedulerName": "two"}}}}, "ps": 1},
    )
    found = {name: (t["spec"]["schedulerName"], t["spec"]["dnsPolicy"]) for name, t in templates(job).items()}
    assert found["j-worker"] == ("two", "None")
    assert found["j-ps"] == ("one", "None")


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
        ({"metadata": {"labels": {"$patch": "replace"}}}, "metadata.labels.$patch: 'replace': no mapping of names has"),
        ({"metadata": {"labels": {"a b": "x"}}}, "metadata.labels.a b: 'x': is no label of Kubernetes"),
        ({"metadata": {"labels": {"a": "x y!"}}}, "metadata.labels.a: 'x y!': is no label of Kubernetes"),
        ({"metadata": {"labels": {"batch.kubernetes.io/job-name": "k"}}}, "metadata.labels.batch.kubernetes.io/job-n"),
        ({"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/task": "unconfined"}}},
         "metadata.annotations.container.apparmor.security.beta.kubernetes.io/task: 'unconfined': changes a protectio"),
        ({"spec": {"dnsConfig": {"options": [{"name": "ndots", "$patch": "delete"}]}}},
         "spec.dnsConfig.options[0].$patch: 'delete': must be delete, in an item of a list that Kubernetes merges"),
        ({"spec": {"dnsPolicy": "Default"}}, "spec.dnsPolicy: 'Default': tasks find each other by the DNS of the"),
        ({"spec": {"nodeName": "n"}}, "spec.nodeName: 'n': passes the scheduler over; use kubernetes.node_selector"),
        ({"spec": {"volumes": [{"name": "tmp", "$patch": "delete"}]}},
         "spec.volumes[tmp]: spec.containers[task].volumeMounts[/tmp] mounts it; keep it"),
        (of_task(resources={"limits": {"memory": "lots"}}),
         "spec.containers[task].resources.limits.memory: 'lots': must be a quantity: 500m, 2, 1.5Gi"),
        (of_task(lifecycle={"preStop": {"exec": {"command": ["a", None]}}}),
         "spec.containers[task].lifecycle.preStop.exec.command[1]: null: is no item of a list; remove it"),
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
        ({"spec": {"volumes": [{"name": "tmp", "hostPath": {"path": "/"}}]}}, "spec.volumes[tmp].hostPath.path"),
        ({"spec": {"volumes": [{"name": "tmp", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}},
         "spec.volumes[tmp].projected.sources"),
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


FETCH = {"name": "fetch", "image": "i"}


def test_a_patch_of_an_init_container_opens_no_port_of_the_node_and_reads_no_secret() -> None:
    theirs: dict[str, Any] = {"kubernetes": {"init_containers": [FETCH]}}
    port, mount = {"containerPort": 80, "hostPort": 80}, {"mountPath": "/x", "name": "report-secret"}
    (found,) = problems(spec({"spec": {"initContainers": [{"name": "fetch", "ports": [port]}]}}, **theirs))
    assert "set kubernetes.unsafe: [spec.initContainers[fetch].ports[80].hostPort]" in found
    (found,) = problems(spec({"spec": {"initContainers": [{"name": "fetch", "volumeMounts": [mount]}]}}, **theirs))
    assert "spec.initContainers[fetch].volumeMounts[/x].name: 'report-secret': holds the secret of the job's" in found


@pytest.mark.parametrize(
    "patch",
    [
        {"spec": {"schedulerName": "default-scheduler"}},
        {"metadata": {"annotations": {"scheduling.k8s.io/group-name": "other"}}},
    ],
)
def test_a_patch_takes_no_pod_out_of_its_gang(patch: dict[str, Any]) -> None:
    (found,) = problems(spec(patch, kubernetes={"gang": "volcano"}))
    assert "kubernetes.gang needs " in found
    kubernetes.render(spec(patch), "trainer render")


def test_on_the_nodes_network_tasks_find_each_other_by_the_clusters_dns() -> None:
    more = {"kubernetes": {"unsafe": ["spec.hostNetwork"]}}
    assert templates(spec({"spec": {"hostNetwork": True}}, **more))["j-ps"]["spec"]["dnsPolicy"] == (
        "ClusterFirstWithHostNet"
    )
    own = {"hostNetwork": True, "dnsPolicy": "None"}
    assert templates(spec({"spec": own}, **more))["j-ps"]["spec"]["dnsPolicy"] == "None"


def test_a_message_names_the_section_that_the_spec_has() -> None:
    bad = {"worker": {"replicas": 2, "kubernetes": {"pod": {"sepc": {}}}}}
    job = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": bad})
    (found,) = problems(job)
    assert found.startswith("tasks.worker.kubernetes.pod.sepc: ")


VALID: list[dict[str, Any]] = [
    {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "x", "labelSelector": {"matchLabels": {"storage": "ssd", "limits": "no"}}}]}}},
    {"volumes": [{"name": "v", "csi": {"driver": "d", "volumeAttributes": {"storage": "fast"}}}]},
    {"annotations": {"container.apparmor.security.beta.kubernetes.io/task": "runtime/default"}},
    {"labels": {"kueue.x-k8s.io/priority-class": "high"}},
    {"pod": {"metadata": {"labels": {"kueue.x-k8s.io/priority-class": "high", "storage": "ssd"}}}},
    {"pod": {"spec": {"volumes": [{"name": "extra", "emptyDir": {"sizeLimit": "1Gi"}}]}},
     "sidecars": [{"name": "s", "image": "i", "volumeMounts": [{"name": "extra", "mountPath": "/x"}]}]},
    {"sidecars": [{"name": "s", "image": "i", "resources": {"limits": {"memory": "1Gi", "cpu": 2, "a.b/c": 1}},
                   "livenessProbe": {"httpGet": {"path": "/", "port": "http"}}}]},
]  # fmt: skip


@pytest.mark.parametrize("section", VALID)
def test_what_kubernetes_admits_is_not_refused(section: dict[str, Any]) -> None:
    templates(spec(kubernetes=section))
