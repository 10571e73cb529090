"""Replies of API servers that a test cannot start: one that is too old, one that sends malformed replies."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import Callable, Coroutine, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio.client import ApiClient, Configuration

from tests.unit.cli.commands import trainer
from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.targets.kubernetes import advice, api_server
from trainer.targets.kubernetes.api_server import ApiServer

SPEC = {"name": "j", "strategy": "multi_worker_mirrored", "workload": "digits", "tasks": {"worker": 1}}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """A server that answers each path with what the test puts there, and a kubeconfig that names it."""
    answers: dict[str, str] = {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = answers.get(self.path, "{}").encode()
            code = json.loads(body).get("code", 200) if body.startswith(b"{") else 200
            self.send_response(code)
            if code == api_server.TOO_MANY_REQUESTS:
                del answers[self.path]  # only once
                self.send_header("Retry-After", "0")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    http = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    context: dict[str, Any] = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{http.server_port}"}}],
        "users": [{"name": "u", "user": {}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(context))
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    yield answers
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.mark.parametrize(
    ("version", "line"),
    [
        (json.dumps({"major": "1", "minor": "28+"}), "Kubernetes 1.28 is too old for a Job's spec.podFailurePolicy"),
        ("<html>", "http://127.0.0.1:"),
    ],
    ids=["old", "another program"],
)
def test_an_unsuitable_server_is_named(server: dict[str, str], tmp_path: Path, version: str, line: str) -> None:
    server["/version"] = version
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    ended = trainer("submit", str(path))
    assert ended.returncode == Exit.TARGET, ended.stderr
    assert line in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_values_that_are_not_there_are_refused_before_a_pod_waits_for_them(
    server: dict[str, str], tmp_path: Path
) -> None:
    server["/version"] = json.dumps({"major": "1", "minor": "31"})
    server["/api/v1/namespaces/default/configmaps/cloud"] = json.dumps({"data": {"region": "x"}})
    env = {"REGION": {"config_map": "cloud", "key": "region"}, "ZONE": {"config_map": "cloud"}}
    tasks = {"worker": {"replicas": 2, "kubernetes": {"env": {"DISK": {"config_map": "none", "key": "d"}}}}}
    more = {"secrets": {"TOKEN": {"secret": "hub"}}, "kubernetes": {"env": env}, "tasks": tasks}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({**SPEC, **more}))
    ended = trainer("submit", str(tmp_path / "job.yaml"))
    assert ended.returncode == Exit.USER
    assert [line.partition(";")[0] for line in ended.stderr.splitlines()] == [
        "trainer: secrets.TOKEN: namespace default has no Secret hub with a key TOKEN",
        "trainer: kubernetes.env.ZONE: namespace default has no ConfigMap cloud with a key ZONE",
        "trainer: tasks.worker.kubernetes.env.DISK: namespace default has no ConfigMap none with a key d",
    ]


PROGRAM: dict[str, Any] = {"program": ["python", "train.py"], "code": []}
MOVES: dict[str, Any] = {"volume": {"access": "ReadWriteMany"}}
SAYS = "but kubernetes.volume.access is ReadWriteMany: the chief cannot move"


@pytest.mark.parametrize(
    ("modes", "more", "found"),
    [
        (["ReadWriteMany"], PROGRAM, ""),
        (["ReadWriteMany"], MOVES, ""),
        (["ReadWriteOnce"], MOVES, f"is ReadWriteOnce, {SAYS} from a lost node; name a claim with ReadWriteMany"),
        (
            ["ReadWriteOnce"],
            {**PROGRAM, **MOVES},
            f"is ReadWriteOnce, {SAYS} from a lost node, and pods on other nodes",
        ),
        (["ReadWriteOncePod"], MOVES, f"is ReadWriteOncePod, {SAYS} from a lost node; name a claim"),
        (["ReadOnlyMany"], MOVES, "is ReadOnlyMany, and the job writes to it; use ReadWriteMany"),
        (["ReadWriteOnce"], PROGRAM, "is ReadWriteOnce, and 2 pods write to it: those on other nodes"),
        (["ReadWriteOnce"], {}, ""),
        (["ReadWriteOncePod"], {}, ""),
        (["ReadWriteOncePod"], PROGRAM, "is ReadWriteOncePod, and 2 pods mount it: only one starts"),
        (["ReadOnlyMany"], {}, "is ReadOnlyMany, and the job writes to it; use ReadWriteMany"),
        (None, {}, "namespace default has no such PersistentVolumeClaim; the pods wait for it"),
    ],
)
def test_a_claim_that_does_not_fit_is_warned_of(
    server: dict[str, str], modes: list[str] | None, more: dict[str, Any], found: str
) -> None:
    items = [] if modes is None else [{"spec": {"accessModes": modes}}]
    path = "/api/v1/namespaces/default/persistentvolumeclaims?fieldSelector=metadata.name%3Dteam"
    server[path] = json.dumps({"items": items})
    # A program has no workload.
    given = {key: value for key, value in SPEC.items() if key != "workload"}
    section = {"volume": {"claim": "team", **more.get("volume", {})}}
    more = {key: value for key, value in more.items() if key != "volume"}
    spec = build({**given, **more, "tasks": {"worker": 2}, "kubernetes": section})
    assert "".join(advise(spec)).startswith(f"kubernetes.volume.claim: 'team': {found}" if found else "")
    assert len(advise(spec)) == bool(found)


def test_a_topology_that_no_node_has_is_warned_of(server: dict[str, str]) -> None:
    path = "/api/v1/nodes?labelSelector=rack&limit=1"
    spec = build({**SPEC, "kubernetes": {"topology": "rack"}})
    server[path] = json.dumps({"items": [{}]})
    assert advise(spec) == []
    server[path] = json.dumps({"items": []})
    assert advise(spec) == ["kubernetes.topology: 'rack': no node has the label rack, so it has no effect"]


@pytest.mark.parametrize("code", [404, 500])
def test_a_log_that_cannot_be_read_is_one_line_and_no_failure(server: dict[str, str], code: int) -> None:
    """A node that does not answer, or a pod that has just been removed, of several whose logs are read."""
    server["/api/v1/namespaces/default/pods/lost/log?timestamps=true&container=task&follow=false"] = json.dumps(
        {"code": code, "message": "dial tcp 172.18.0.4:10250: no route to host"}
    )

    async def read(api: ApiServer) -> list[str]:
        return [line async for line in api.log("lost")]

    (line,) = on_server(read)
    assert re.fullmatch(
        rf"20\S+Z trainer: the log of lost cannot be read: .*\({code}\): dial tcp .*: no route to host", line
    )


def test_a_server_that_is_busy_is_asked_again(server: dict[str, str]) -> None:
    """As one is for a moment where the definition of the kind has just changed."""
    server["/apis/x/things"] = json.dumps({"code": 429, "message": "storage is (re)initializing"})

    async def ask(api: ApiServer) -> list[str]:
        return list(await api._ask("GET", "/apis/x/things"))

    assert on_server(ask) == []


def advise(spec: JobSpec) -> list[str]:
    return on_server(lambda server: advice.warnings(server, spec))


def on_server(ask: Callable[[ApiServer], Coroutine[Any, Any, list[str]]]) -> list[str]:
    async def run() -> list[str]:
        # The client looks for its files once, when it is imported.
        known = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())["clusters"][0]["cluster"]["server"]
        settings = Configuration(host=known)
        async with ApiClient(settings) as api:
            return await ask(ApiServer(settings, api, "default"))

    return asyncio.run(run())


@pytest.mark.parametrize("text", ["", "{{", "[1]", "current-context: x"])
def test_a_kubeconfig_that_is_none_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    ended = trainer("status")
    assert ended.returncode == Exit.TARGET
    assert ended.stderr.startswith("trainer: no Kubernetes to connect to (")
    assert ended.stderr.count("\n") == 1
