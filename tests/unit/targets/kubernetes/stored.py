"""A server that stores objects and forbids verbs, without the controllers behind it."""

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

from kubernetes.aio.client import ApiClient, Configuration

from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.targets.base import Deleted, Submitted
from trainer.targets.kubernetes import lifecycle
from trainer.targets.kubernetes.api_server import ApiServer
from trainer.targets.kubernetes.job_set import plain

CORE = "/api/v1/namespaces/default"
JOB_SETS = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
PODS = f"{CORE}/pods"
MONITORS = "/apis/monitoring.coreos.com/v1/namespaces/default/podmonitors"
OTHERS = ("jobsets", "podgroups", "podmonitors")
"""Resources of extensions."""


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
    refuses_to_create: str = ""
    """A path: its object passes a dry run only."""
    on_list: Callable[[str], None] = lambda _: None
    """Called with the path before an answer to a list."""
    url: str = ""

    def answer(self, verb: str, path: str, query: dict[str, str], body: Any) -> Any:
        resource = self.resource(path)
        if f"{verb} {resource}" in self.forbidden:
            return {"code": 403, "message": f"{resource} is forbidden: User cannot {verb}"}
        if refusal := self.refusals.get(f"{verb} {resource}"):
            return refusal
        if verb == "patch" and path == self.refuses_to_create and "dryRun" not in query:
            return {"code": 403, "message": "exceeded quota: q"}
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


@contextlib.contextmanager
def serving(made: Cluster) -> Iterator[Callable[[str | None], contextlib.AbstractAsyncContextManager[ApiServer]]]:
    """Serves a cluster, and gives what takes the place of api_server.connect."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            url = urlsplit(self.path)
            query = {key: values[0] for key, values in parse_qs(url.query).items()}
            text = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            named = "/" in url.path.partition("/namespaces/default/")[2]
            verbs = {"GET": "get" if named else "list", "POST": "create", "PATCH": "patch"}
            before = {*made.objects}
            verb = verbs.get(self.command) or ("delete" if named else "deletecollection")
            if url.path == "/version":
                found: Any = {"major": "1", "minor": "34"}
            elif "namespaces" not in url.path:
                found = {"resources": [{"name": each} for each in OTHERS]}
            else:
                found = made.answer(verb, url.path, query, json.loads(text) if text else None)
            body = json.dumps(found).encode()
            self.send_response(
                found.get("code", 201 if url.path not in before and verb in ("create", "patch") else 200)
            )
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

    yield connect
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
