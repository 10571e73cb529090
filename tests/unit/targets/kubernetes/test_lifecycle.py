"""Submitting and deleting on a server that stores objects and forbids verbs, without the controllers behind it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes.aio.client import ApiClient, Configuration

from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.model_dir import result
from trainer.model_dir.result import Result, Training
from trainer.targets.base import Deleted, Submitted
from trainer.targets.kubernetes import lifecycle, logs, status
from trainer.targets.kubernetes.api_server import ApiServer
from trainer.targets.kubernetes.job_set import plain

JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = "/api/v1/namespaces/default/pods"
MONITORS = "/apis/monitoring.coreos.com/v1/namespaces/default/podmonitors"
OTHERS = ("jobsets", "podgroups", "podmonitors")
"""Resources of extensions."""
NEWER = (
    "the chief's result cannot be read: version: 99: this trainer reads versions up to 1; use the version of trainer "
    "in its image"
)
SUCCEEDED = Result(
    "j", "one_device", Training(5, {"accuracy": 0.9}, None, None, {}, None, None), 3.5, 1, [], {}, [], {}, {}, {}
)


@dataclass
class Cluster:
    objects: dict[str, Any] = field(default_factory=dict)
    """By path."""
    forbidden: set[str] = field(default_factory=set)
    """`VERB RESOURCE`."""
    refusals: dict[str, Any] = field(default_factory=dict)
    """The server's answer to a verb and resource, with its code."""
    warnings: dict[str, str] = field(default_factory=dict)
    """The Warning header of the server's answer to a verb and resource."""
    on_list: Callable[[str], None] = lambda _: None
    """Called with the path before an answer to a list."""
    url: str = ""

    def answer(self, verb: str, path: str, query: dict[str, str], body: Any) -> Any:
        resource = self.resource(path)
        if f"{verb} {resource}" in self.forbidden:
            return {"code": 403, "message": f"{resource} is forbidden: User cannot {verb}"}
        if refusal := self.refusals.get(f"{verb} {resource}"):
            return refusal
        if verb in ("create", "patch"):
            place = f"{path}/{body['metadata']['name']}" if verb == "create" else path
            if "dryRun" not in query:
                given = {"uid": "1", "creationTimestamp": "2026-01-01T00:00:00Z", **body["metadata"]}
                self.objects[place] = {**body, "metadata": given, "status": {}}
            return body
        if verb == "list":
            self.on_list(path)
            return {"items": [each for place, each in self.objects.items() if self.picks(place, each, path, query)]}
        if verb == "deletecollection":
            return {}
        found = self.objects.pop(path, None) if verb == "delete" else self.objects.get(path)
        return found or {"code": 404, "message": "not found"}

    def resource(self, path: str) -> str:
        return path.partition("/namespaces/default/")[2].partition("/")[0]

    def picks(self, place: str, found: Any, path: str, query: dict[str, str]) -> bool:
        labels, name = found["metadata"].get("labels", {}), found["metadata"]["name"]
        wanted = [each.partition("=") for each in query.get("labelSelector", "").split(",") if each]
        return (
            place.rpartition("/")[0] == path
            and all(labels.get(key) == value if equal else key in labels for key, equal, value in wanted)
            and query.get("fieldSelector", f"metadata.name={name}") in (f"metadata.name={name}", "type=Warning")
        )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster()

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            named = "/" in url.path.partition("/namespaces/default/")[2]
            verbs = {"GET": "get" if named else "list", "POST": "create", "PATCH": "patch"}
            verb = verbs.get(self.command) or ("delete" if named else "deletecollection")
            if url.path == "/version":
                found: Any = {"major": "1", "minor": "34"}
            elif "namespaces" not in url.path:
                found = {"resources": [{"name": each} for each in OTHERS]}
            else:
                found = made.answer(verb, url.path, query, json.loads(text) if text else None)
            body = json.dumps(found).encode()
            self.send_response(found.get("code", 200))
            self.send_header("Content-Length", str(len(body)))
            if warning := made.warnings.get(f"{verb} {made.resource(url.path)}"):
                self.send_header("Warning", warning)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PATCH = do_DELETE = answer

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.01,))
    thread.start()
    made.url = f"http://127.0.0.1:{http.server_port}"

    @contextlib.asynccontextmanager
    async def connect(_: str | None) -> AsyncIterator[ApiServer]:
        settings = Configuration(host=made.url)
        async with ApiClient(settings) as api:
            yield ApiServer(settings, api, "default")

    for module in (lifecycle, logs, status):
        monkeypatch.setattr(module, "connect", connect)
    yield made
    http.shutdown()
    thread.join()
    http.server_close()


def spec(**more: Any) -> JobSpec:
    given = {"name": "j", "strategy": "multi_worker_mirrored", "workload": "digits", "tasks": {"worker": 2}}
    return build({**given, "kubernetes": more})


def submit(**more: Any) -> Submitted:
    return asyncio.run(lifecycle.submit(spec(**more), None, "x", dry_run=False))


def delete() -> Deleted:
    return asyncio.run(lifecycle.delete("j", None, volumes=True))


def run_controllers(cluster: Cluster) -> None:
    """Makes the Jobs of a JobSet."""
    for each in plain(cluster.objects[f"{JOB_SETS}/j"]):
        owner = {"kind": "JobSet", "name": "j", "uid": "1"}
        each["metadata"]["ownerReferences"] = [owner]
        cluster.objects[f"{JOBS}/{each['metadata']['name']}"] = each


def left(cluster: Cluster) -> list[str]:
    """What there is but the secret, which this server does not delete by labels."""
    return [path for path in cluster.objects if "/secrets/" not in path]


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
    cluster.objects[f"{JOBS.replace('apis/batch', 'api').replace('jobs', 'pods')}/p"] = {
        "metadata": {"name": "p", "labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {**chief["spec"]["template"]["spec"], "nodeName": "n"},
        "status": {"phase": "Succeeded", "containerStatuses": [{"name": "task", "state": {"terminated": terminated}}]},
    }
    overview = asyncio.run(status.status("j", None))
    assert (overview.phase, overview.code) == ("done", 0)
    assert (overview.job, overview.unreadable) == found
