"""Submitting and deleting on a server that stores objects and forbids verbs, without the controllers behind it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.unit.targets.kubernetes.stored import (
    JOB_SETS,
    JOBS,
    MONITORS,
    OTHERS,
    PODS,
    Cluster,
    delete,
    left,
    run_controllers,
    submit,
)
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.model_dir import result
from trainer.model_dir.result import Result, Training
from trainer.targets.kubernetes import logs, status
from trainer.targets.kubernetes.job_set import plain

NEWER = (
    "the chief's result cannot be read: version: 99: this trainer reads versions up to 1; use the version of trainer "
    "in its image"
)
SUCCEEDED = Result(
    "j", "one_device", Training(5, {"accuracy": 0.9}, None, None, {}, None, None), 3.5, 1, [], {}, [], {}, {}, {}
)


# What may be deleted but not listed. ---------------------------------------------------------------------


@pytest.mark.parametrize("verbs", [("list",), ("list", "get")])
def test_what_a_user_may_delete_but_not_list_is_deleted_by_its_name(cluster: Cluster, verbs: tuple[str, ...]) -> None:
    submit(gang="jobset", metrics={"namespace": "m", "kind": "podmonitor"})
    run_controllers(cluster)
    assert {f"{JOB_SETS}/j", f"{MONITORS}/j"} <= {*cluster.objects}
    cluster.forbidden = {f"{verb} {each}" for verb in verbs for each in OTHERS}
    delete()
    assert left(cluster) == []


def test_a_user_without_rights_on_extensions_deletes_a_job_that_has_none(cluster: Cluster) -> None:
    submit()
    cluster.forbidden = {f"{verb} {each}" for verb in ("list", "get", "delete") for each in OTHERS}
    delete()
    assert left(cluster) == []


def test_jobs_of_a_job_set_that_may_not_be_deleted_stay(cluster: Cluster) -> None:
    submit(gang="jobset")
    run_controllers(cluster)
    before = left(cluster)
    cluster.forbidden = {f"{verb} {each}" for verb in ("list", "get", "delete") for each in OTHERS}
    with pytest.raises(TrainerError) as caught:
        delete()
    assert caught.value.code is Exit.TARGET
    assert str(caught.value) == (
        "j: its JobSet would make the Jobs again, and you may not delete it, so all stays; you need the right to "
        "delete jobsets.jobset.x-k8s.io in namespace default"
    )
    assert left(cluster) == before


def test_pods_keep_their_names_and_policy_until_they_have_ended(cluster: Cluster) -> None:
    submit()
    (job, *_) = (each for place, each in cluster.objects.items() if place.startswith(JOBS))
    pod, seen = f"{PODS}/j-0", list[set[str]]()
    cluster.objects[pod] = {"metadata": {"name": "j-0", "labels": job["metadata"]["labels"]}}

    def end_the_third_time(path: str) -> None:
        if path == PODS and pod in cluster.objects:
            seen.append({cluster.resource(place) for place in cluster.objects})
            if len(seen) == 3:
                del cluster.objects[pod]

    cluster.on_list = end_the_third_time
    delete()
    assert len(seen) == 3
    assert all({"services", "networkpolicies", "configmaps"} <= kinds and "jobs" not in kinds for kinds in seen)
    assert left(cluster) == []


def test_what_others_have_made_under_the_name_stays(cluster: Cluster) -> None:
    submit()
    cluster.objects[f"{MONITORS}/j"] = {"metadata": {"name": "j"}}
    cluster.forbidden = {f"list {each}" for each in OTHERS}
    delete()
    assert left(cluster) == [f"{MONITORS}/j"]


# Somebody else's JobSet. ---------------------------------------------------------------------------------


FOREIGN: list[Any] = [
    {"metadata": {"name": "j"}, "spec": {"replicatedJobs": [{"name": "leader", "template": {"spec": {}}}]}},
    {"metadata": {"name": "j"}, "spec": {"replicatedJobs": [{"name": "worker", "template": {"spec": {}}}]}},
]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_job_set_of_another_program_takes_the_name_of_a_job_set(cluster: Cluster, foreign: Any) -> None:
    cluster.objects[f"{JOB_SETS}/j"] = foreign
    with pytest.raises(UserError) as caught:
        submit(gang="jobset")
    assert str(caught.value) == (
        "name: 'j': is taken in namespace default by a JobSet that trainer did not create; choose another name"
    )
    assert left(cluster) == [f"{JOB_SETS}/j"]


@pytest.mark.parametrize("foreign", FOREIGN)
def test_a_job_without_a_job_set_ignores_that_of_another_program(cluster: Cluster, foreign: Any) -> None:
    cluster.objects[f"{JOB_SETS}/j"] = foreign
    assert submit().new
    assert not submit().new
    assert set(asyncio.run(status.status("j", None)).tasks) == {"chief:0", "worker:0"}
    assert [each.job for each in asyncio.run(status.jobs(None))] == ["j"]

    async def read() -> list[Any]:
        return [line async for line in logs.logs("j", None, None, follow=False)]

    assert asyncio.run(read()) == []
    delete()
    assert left(cluster) == [f"{JOB_SETS}/j"]


@pytest.mark.parametrize(("more", "warned"), [({}, "patch jobs"), ({"gang": "jobset"}, "create jobs")])
def test_what_the_server_warns_of_is_said_once(cluster: Cluster, more: dict[str, str], warned: str) -> None:
    text = r"would violate PodSecurity \"restricted:latest\": hostPath volumes (volume \"runs\")"
    cluster.warnings[warned] = f'299 - "{text}"'
    assert submit(**more).warnings == [
        'Kubernetes: would violate PodSecurity "restricted:latest": hostPath volumes (volume "runs")'
    ]


# What JobSet does not check. -----------------------------------------------------------------------------

CAUSE = {"field": "spec.template.spec.containers[0].image", "message": "Required value: must not be empty"}
INVALID = {"code": 422, "message": "invalid", "details": {"causes": [CAUSE]}}


def test_jobs_that_kubernetes_would_refuse_are_refused_before_their_job_set_exists(cluster: Cluster) -> None:
    cluster.refusals["create jobs"] = INVALID
    with pytest.raises(TrainerError) as caught:
        submit(gang="jobset")
    assert str(caught.value) == (
        "jobs/j-chief-0: Kubernetes refuses this (422): spec.template.spec.containers[0].image: must not be empty"
    )
    assert cluster.objects == {}


def test_a_user_who_may_not_create_jobs_submits_a_job_set(cluster: Cluster) -> None:
    cluster.forbidden.add("create jobs")
    submit(gang="jobset")
    assert f"{JOB_SETS}/j" in cluster.objects


def test_the_checked_jobs_are_those_of_the_job_set(cluster: Cluster) -> None:
    submit(gang="jobset", queue="research")
    job_set = cluster.objects[f"{JOB_SETS}/j"]
    found = plain(job_set)
    assert [each["metadata"]["name"] for each in found] == ["j-chief-0", "j-worker-0"]
    for each, part in zip(found, job_set["spec"]["replicatedJobs"], strict=True):
        assert each.keys() == {"apiVersion", "kind", "metadata", "spec"}
        assert each["metadata"]["labels"] == part["template"]["metadata"]["labels"]
        assert each["spec"] == {**part["template"]["spec"], "suspend": True}
    # Only checked.
    assert not [path for path in cluster.objects if path.startswith(JOBS)]


# All or none. --------------------------------------------------------------------------------------------


def test_what_was_made_before_a_refusal_is_removed_again_but_not_what_was_there(cluster: Cluster) -> None:
    """A quota counts what exists: the dry run of each object passes."""
    submit()
    claim = "/api/v1/namespaces/default/persistentvolumeclaims/j"
    cluster.objects = {claim: cluster.objects[claim]}
    cluster.refuses_to_create = f"{JOBS}/j-worker"
    with pytest.raises(TrainerError) as caught:
        submit()
    assert caught.value.code is Exit.TARGET
    assert str(caught.value) == (
        "jobs/j-worker: Kubernetes refuses this (403): exceeded quota: q; what was made before is removed again"
    )
    assert list(cluster.objects) == [claim]


def test_what_cannot_be_removed_again_is_named_with_the_command_that_does(cluster: Cluster) -> None:
    cluster.refuses_to_create = f"{JOBS}/j-worker"
    cluster.forbidden = {"delete jobs"}
    with pytest.raises(TrainerError, match=r"; `trainer delete --namespace default j` removes what was made before$"):
        submit()


def test_status_names_tasks_and_parts_that_are_not_there_and_submit_makes_them_again(cluster: Cluster) -> None:
    submit()
    whole = {**cluster.objects}
    config = next(path for path in whole if "/configmaps/" in path)
    for path in (f"{JOBS}/j-worker", config.replace(config.rpartition("/")[2], "j").replace("configmaps", "services")):
        del cluster.objects[path]
    overview = asyncio.run(status.status("j", None))
    assert overview.tasks["worker:0"].state == "missing"
    assert overview.tasks["worker:0"].reason == (
        "there is no Job j-worker: it was never made, or was deleted; `trainer submit` with its spec makes it again"
    )
    assert overview.warnings == [
        "Service j is gone, without which its tasks do not find each other; "
        "`trainer submit` with its spec makes it again"
    ]
    del cluster.objects[config]
    line = (asyncio.run(status.status("j", None)).warnings or [""])[0]
    assert line.startswith(f"ConfigMap {config.rpartition('/')[2]} is gone, without which no new pod of it starts; ")
    assert not submit().new
    assert cluster.objects.keys() == whole.keys()
    assert asyncio.run(status.status("j", None)).warnings is None


def test_a_secret_that_was_deleted_is_made_again_but_none_for_a_job_that_had_none(cluster: Cluster) -> None:
    submit()
    place = "/api/v1/namespaces/default/secrets/j-report-secret"
    del cluster.objects[place]
    assert not submit().new
    assert place in cluster.objects, "no task runs that has another value"
    del cluster.objects[place]
    for path, each in cluster.objects.items():
        for volume in each["spec"]["template"]["spec"]["volumes"] if path.startswith(JOBS) else []:
            volume.get("secret", {})["optional"] = True
    submit()
    assert place not in cluster.objects


# What the chief has left. --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "found"),
    [
        (json.dumps(result.brief(SUCCEEDED)), (SUCCEEDED, None)),
        (None, (None, None)),
        ("the last line of a log", (None, None)),
        ('{"version": 99}', (None, NEWER)),
    ],
    ids=["result", "nothing", "line", "newer"],
)
def test_a_job_that_is_over_has_the_result_that_its_chief_has_left(
    cluster: Cluster, message: str | None, found: tuple[Result | None, str | None]
) -> None:
    submit()
    chief = cluster.objects[f"{JOBS}/j-chief"]
    chief["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
    labels = {**chief["spec"]["template"]["metadata"]["labels"], "batch.kubernetes.io/job-completion-index": "0"}
    terminated = {"exitCode": 0, **({"message": message} if message else {})}
    cluster.objects[f"{PODS}/p"] = {
        "metadata": {"name": "p", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {**chief["spec"]["template"]["spec"], "nodeName": "n"},
        "status": {"phase": "Succeeded", "containerStatuses": [{"name": "task", "state": {"terminated": terminated}}]},
    }
    overview = asyncio.run(status.status("j", None))
    assert (overview.phase, overview.code) == ("done", 0)
    assert (overview.job, overview.unreadable) == found
    assert {name: row.state for name, row in overview.tasks.items()} == {"chief:0": "succeeded", "worker:0": "removed"}
    del cluster.objects[f"{PODS}/p"]
    assert asyncio.run(status.status("j", None)).tasks["chief:0"].state == "removed", "not missing: it has ended"
