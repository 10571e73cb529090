"""Jobs that start as a whole: a JobSet, or the PodGroup of a scheduler."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.unit.targets.kubernetes.test_render import jobs, manifests, ps, spec
from trainer.job.errors import Exit, UserError
from trainer.job.names import split_address
from trainer.job.spec import JobSpec
from trainer.targets.kubernetes import pods
from trainer.targets.kubernetes import render as kubernetes
from trainer.targets.kubernetes.job_set import jobs_of, with_sets

ACCESS = ("ReadWriteOnce", "ReadWriteMany")


def gang(name: str, **more: Any) -> JobSpec:
    tasks = {"worker": 2, "ps": 1, "evaluator": 1}
    return ps(tasks=tasks, kubernetes={"gang": name, **more})


def job_set(**more: Any) -> Any:
    return manifests(gang("jobset", **more))["JobSet", "j"]


def templates(found: Any) -> dict[str, Any]:
    return {each["name"]: each["template"] for each in found["spec"]["replicatedJobs"]}


def test_a_job_set_holds_the_jobs_that_there_are_without_one() -> None:
    alone, whole = jobs(gang("none")), templates(job_set())
    assert {f"j-{name}" for name in whole} == {*alone}
    for name, template in whole.items():
        own, other = template["spec"], alone[f"j-{name}"]["spec"]
        # The JobSet has these for all.
        assert other.keys() - own.keys() == {"suspend", "ttlSecondsAfterFinished"}
        assert own["completions"] == other["completions"]
        assert own["template"]["metadata"] == other["template"]["metadata"]
        assert template["metadata"]["labels"].items() >= alone[f"j-{name}"]["metadata"]["labels"].items()


def test_the_cluster_has_the_names_of_a_job_sets_pods() -> None:
    found = manifests(gang("jobset"))
    (config,) = (each for (kind, _), each in found.items() if kind == "ConfigMap")
    cluster = json.loads(config["data"]["cluster"])
    network, service = found["JobSet", "j"]["spec"]["network"], found["Service", "j"]
    hosts = {}
    for each in found["JobSet", "j"]["spec"]["replicatedJobs"]:
        count = each["template"]["spec"]["completions"]
        hosts[each["name"]] = [f"j-{each['name']}-0-{i}.{network['subdomain']}" for i in range(count)]
    hosts.pop("evaluator")
    assert {name: [split_address(each)[0] for each in addresses] for name, addresses in cluster.items()} == hosts
    assert network["enableDNSHostnames"]
    assert service["spec"]["clusterIP"] == "None"


def test_the_names_of_a_job_set_are_longer_and_its_webhook_counts_a_suffix() -> None:
    name = "a" * (63 - len("-worker-2"))
    spec(name=name)
    with pytest.raises(UserError, match="a JobSet, which counts the suffix of its pods, allows 57; shorten it by 8"):
        spec(name=name, kubernetes={"gang": "jobset"})


def test_only_the_chiefs_end_is_that_of_a_job_set() -> None:
    policy, found = job_set()["spec"], templates(job_set())
    assert policy["successPolicy"]["targetReplicatedJobs"] == ["chief"]
    assert policy["failurePolicy"]["rules"][0]["targetReplicatedJobs"] == ["chief"]
    policies = {
        name: each["spec"]["podFailurePolicy"] for name, each in found.items() if "podFailurePolicy" in each["spec"]
    }
    final = {name: [rule["action"] for rule in each["rules"]] for name, each in policies.items()}
    assert final == {"chief": ["Ignore", "Ignore", "FailJob"], "evaluator": ["Ignore", "Ignore"]}
    assert found["evaluator"]["spec"]["backoffLimit"] == 2**31 - 1
    assert found["worker"]["spec"]["backoffLimit"] == 60


def test_a_queue_labels_what_kueue_admits() -> None:
    label = "kueue.x-k8s.io/queue-name"
    found = job_set(queue="research")
    assert found["spec"]["suspend"]
    assert found["metadata"]["labels"][label] == "research"
    assert not any(label in each["metadata"]["labels"] for each in templates(found).values())
    alone = jobs(spec(strategy="one_device", tasks={"worker": 1}, kubernetes={"queue": "research"}))
    assert alone["j-chief"]["metadata"]["labels"][label] == "research"


def test_kubernetes_own_group_has_no_queue() -> None:
    job = spec(strategy="one_device", tasks={"worker": 1}, kubernetes={"gang": "podgroup", "queue": "research"})
    with pytest.raises(UserError, match="the scheduler of Kubernetes knows no queues"):
        kubernetes.render(job, "x")


def test_a_chief_that_moves_fails_its_job_set_by_its_last_pod() -> None:
    """Its Job has no podFailurePolicy, and tries each failure again by itself."""
    rules = [job_set(volume={"access": each})["spec"]["failurePolicy"]["rules"][0] for each in ACCESS]
    assert [each["onJobFailureReasons"] for each in rules] == [
        ["PodFailurePolicy"],
        ["PodFailurePolicy", "BackoffLimitExceeded"],
    ]


def test_a_queue_that_would_admit_parts_is_refused() -> None:
    with pytest.raises(UserError, match=r"would admit the 4 Jobs of this job one by one.*set kubernetes.gang: jobset"):
        kubernetes.render(gang("none", queue="research"), "x")


def test_volcano_gets_a_group_of_all_pods_and_its_own_queue() -> None:
    found = manifests(gang("volcano", queue="research", priority_class="high"))
    group = found["PodGroup", "j"]
    assert group["spec"] == {"minMember": 5, "queue": "research", "priorityClassName": "high"}
    for each in jobs(gang("volcano", queue="research")).values():
        template = each["spec"]["template"]
        assert template["spec"]["schedulerName"] == "volcano"
        assert template["metadata"]["annotations"] == {"scheduling.k8s.io/group-name": "j"}
        assert not each["spec"]["suspend"]
        assert "kueue.x-k8s.io/queue-name" not in each["metadata"]["labels"]


def test_kubernetes_own_group_has_all_pods() -> None:
    group = manifests(gang("podgroup"))["PodGroup", "j"]
    assert group["spec"] == {"schedulingPolicy": {"gang": {"minCount": 5}}}
    for each in jobs(gang("podgroup")).values():
        assert each["spec"]["template"]["spec"]["schedulingGroup"] == {"podGroupName": group["metadata"]["name"]}


def test_volcanos_group_fits_its_published_type() -> None:
    """No controller of Volcano's runs in the tests. The fields are those of PodGroupSpec in volcano.sh/apis v1.12.1."""
    fields = {
        "minMember": int, "minTaskMember": dict, "queue": str, "priorityClassName": str, "minResources": dict,
        "networkTopology": dict,
    }  # fmt: skip
    group = manifests(gang("volcano", queue="q", priority_class="p"))["PodGroup", "j"]
    assert group["apiVersion"] == "scheduling.volcano.sh/v1beta1"
    assert {key: type(value) for key, value in group["spec"].items()}.items() <= fields.items()


def live(found: Any, *conditions: str, suspend: bool = False) -> Any:
    """A JobSet as the API server gives it."""
    status = {"conditions": [{"type": each, "status": "True"} for each in conditions]}
    metadata = {**found["metadata"], "uid": "set", "creationTimestamp": "2026-01-01T00:00:00Z"}
    return {**found, "metadata": metadata, "spec": {**found["spec"], "suspend": suspend}, "status": status}


def job(name: str, *conditions: str) -> Any:
    made = next(each for each in jobs_of(live(job_set()), {}) if each["metadata"]["name"] == name)
    return {**made, "status": {"conditions": [{"type": each, "status": "True"} for each in conditions]}}


@pytest.mark.parametrize(
    ("conditions", "own", "ended"),
    [
        ([], [], None),
        (["Completed"], ["Complete"], "done"),
        (["Failed"], ["Failed"], "failed"),
        ([], ["Failed"], None),  # the JobSet starts all again
        ([], ["Complete"], None),  # it is about to see that
    ],
)
def test_the_chiefs_job_has_the_outcome_of_its_job_set(
    conditions: list[str], own: list[str], ended: str | None
) -> None:
    found = with_sets([job("j-chief-0", *own)], [live(job_set(), *conditions)], [])
    chief = pods.chief_of(found)
    assert chief is not None
    assert pods.ended(chief[0]) == ended
    assert len(found) == 4


def test_a_job_that_kueue_does_not_admit_says_why() -> None:
    message = "couldn't assign flavors to pod set chief: insufficient quota for cpu, request > maximum capacity"
    workload = {
        "metadata": {"ownerReferences": [{"uid": "set"}]},
        "status": {"conditions": [{"type": "QuotaReserved", "status": "False", "message": message}]},
    }
    found = with_sets([], [live(job_set(), suspend=True)], [workload])
    rows = pods.tasks(found, [], [], [])
    assert {*rows} == {"chief:0", "worker:0", "worker:1", "ps:0", "evaluator:0"}
    assert {row.reason for row in rows.values()} == {f"the Job is suspended; Kueue: {message}"}


def test_final_codes_are_those_that_a_retry_cannot_change() -> None:
    (rule,) = templates(job_set())["chief"]["spec"]["podFailurePolicy"]["rules"][2:]
    assert Exit.DIVERGED in rule["onExitCodes"]["values"]
    assert not {Exit.CHIEF_LOST, Exit.STOPPED, Exit.OK} & {*rule["onExitCodes"]["values"]}
