"""A client of the Kubernetes API server: plain JSON, and errors of one line.

The official client finds the server and authenticates. Its classes for each kind are not used: the manifests are JSON
already, and an older client's classes would drop a newer server's fields.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from aiohttp import ClientError, ClientTimeout, ClientWebSocketResponse, WSServerHandshakeError
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException
from kubernetes.aio.stream import WsApiClient
from kubernetes.aio.utils.retry import retry_after_seconds

from trainer.job.errors import Exit, TrainerError
from trainer.targets.kubernetes import gang
from trainer.targets.kubernetes.objects import Manifest
from trainer.targets.outage import NoAnswer, Refused

OLDEST = (1, 31)
"""The first version in which all used fields are stable: podFailurePolicy of Jobs left beta."""
BUSY_TRIES, BUSY_SECONDS = 5, 5.0
"""How often a request is repeated that the server is too busy for, and the longest wait before each."""
CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 30.0
CREATED, UNAUTHORIZED, FORBIDDEN, TOO_MANY_REQUESTS = 201, 401, 403, 429
MANAGER = "trainer"
"""Field manager of server-side apply."""
_WARNING = re.compile(r'299 \S+ "((?:[^"\\]|\\.)*)"')
"""A Warning header: code, agent and quoted text (RFC 7234, 5.5)."""
_PATHS = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "Event": "/api/v1/namespaces/{}/events",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Service": "/api/v1/namespaces/{}/services",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
}
EXTENSIONS = {
    "JobSet": f"/apis/{gang.JOB_SET}/namespaces/{{}}/jobsets",
    "PodGroup": f"/apis/{gang.POD_GROUP}/namespaces/{{}}/podgroups",
    "VolcanoPodGroup": f"/apis/{gang.VOLCANO}/namespaces/{{}}/podgroups",
    "LocalQueue": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/localqueues",
    "Workload": "/apis/kueue.x-k8s.io/v1beta2/namespaces/{}/workloads",
    "PodMonitor": "/apis/monitoring.coreos.com/v1/namespaces/{}/podmonitors",
}
"""What a cluster has only with some extension; those of an extension that is missing count as an empty list."""


class Applied(NamedTuple):
    warnings: Sequence[str] = ()
    """What the server warns of, such as pods that Pod Security will not admit."""
    created: bool = False
    """Whether the object was not there before."""


@dataclass(frozen=True)
class ApiServer:
    """One namespace of it. All methods raise TrainerError, Exit.TARGET, if the server refuses or does not answer."""

    settings: Configuration
    api: ApiClient
    namespace: str

    async def read(self, kind: str, name: str) -> Any:
        """An object (objects.py), or None if there is none of that name."""
        try:
            return await self._ask("GET", self._path(kind, name))
        except _NotFound:
            return None

    async def look(self, kind: str, name: str) -> Manifest | None:
        """Reads an object, as `read`; None too where the user may not read it."""
        try:
            manifest: Manifest | None = await self.read(kind, name)
        except _Forbidden:
            return None
        return manifest

    async def keys(self, kind: str, name: str) -> set[str] | None:
        """The keys in a Secret's or ConfigMap's data, none if it is not there; None where the user may not read it."""
        try:
            return {*((await self.read(kind, name) or {}).get("data") or {})}
        except _Forbidden:
            return None

    async def readable(self, kind: str, **selectors: str) -> list[Manifest] | None:
        """Lists objects, as `items`; None where the user may not list them."""
        try:
            return await self._list(kind, selectors)
        except _Forbidden:
            return None

    async def items(self, kind: str, **selectors: str) -> list[Any]:
        """All objects (objects.py) that labelSelector and fieldSelector pick; none of an extension's that the user may
        not list."""
        try:
            return await self._list(kind, selectors)
        except _Forbidden:
            if kind not in EXTENSIONS:
                raise
            return []

    async def _list(self, kind: str, selectors: dict[str, str]) -> list[Manifest]:
        try:
            return list((await self._ask("GET", self._path(kind), selectors))["items"])
        except _NotFound:
            if kind not in EXTENSIONS:
                raise
            return []

    async def apply(self, manifest: Manifest, dry_run: bool) -> Applied:
        """Server-side apply; a field that another manager has changed since is an error, not overwritten."""
        path = self._path(kind_of(manifest), manifest["metadata"]["name"])
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        try:
            return await self._apply("PATCH", path, query, manifest)
        except _NotFound:
            if manifest["kind"] != "PodMonitor":
                raise
            raise problem(
                f"this cluster has no PodMonitor ({manifest['apiVersion']}): install the Prometheus operator, or set "
                "kubernetes.metrics.kind: annotations"
            ) from None

    async def check(self, manifest: Manifest) -> Applied:
        """Refuses what the server would refuse to create; nothing where the user may not create it."""
        with contextlib.suppress(_Forbidden):
            return await self.create(manifest, dry_run=True)
        return Applied()

    async def create(self, manifest: Manifest, dry_run: bool) -> Applied:
        """Creates an object, or leaves it as it is if it exists; needs no permission to read it."""
        query = {"fieldManager": MANAGER, "fieldValidation": "Strict", **({"dryRun": "All"} if dry_run else {})}
        with contextlib.suppress(_AlreadyThere):
            return await self._apply("POST", self._path(manifest["kind"]), query, manifest)
        return Applied()

    async def delete_all(self, kind: str, **selectors: str) -> None:
        """Deletes all objects that labelSelector picks; needs no permission to list them."""
        await self._ask("DELETE", self._path(kind), selectors)

    async def delete(self, kind: str, name: str) -> None:
        """Deletes an object and its dependents, such as a Job's pods; no error if it does not exist."""
        with contextlib.suppress(_NotFound):
            await self._ask("DELETE", self._path(kind, name), {"propagationPolicy": "Background"})

    async def may_delete(self, kind: str, name: str) -> bool:
        """Deletes an object, as `delete`; returns whether the user may."""
        try:
            await self.delete(kind, name)
        except _Forbidden:
            return False
        return True

    async def require_version(self) -> None:
        """Refuses a server that would silently drop fields of the manifests."""
        version = await self.version()
        numbers = tuple(int(re.sub(r"\D", "", str(version.get(key))) or 0) for key in ("major", "minor"))
        if numbers < OLDEST:
            raise problem(
                f"Kubernetes {numbers[0]}.{numbers[1]} is too old for a Job's spec.podFailurePolicy; "
                f"{OLDEST[0]}.{OLDEST[1]} or newer is needed"
            )

    async def serves(self, api_version: str, resource: str) -> bool:
        """Whether the cluster has an API, perhaps of an extension."""
        try:
            listed = await self._ask("GET", f"/apis/{api_version}")
        except _NotFound:
            return False
        return any(each["name"] == resource for each in listed["resources"])

    async def has(self, kind: str, name: str) -> bool:
        """Whether there is an object of that name; True where the user may not read it."""
        try:
            return await self.read(kind, name) is not None
        except _Forbidden:
            return True

    async def log(self, pod: str, follow: bool = False, **more: str) -> AsyncIterator[str]:
        """Lines of a pod's container, each with its time in front; with `follow`, until the container ends. If the node
        does not answer, or the pod has just been removed, one line with that reason.

        Args:
            more: parameters of the API, such as tailLines.

        Raises:
            NoAnswer: with `follow`, also if only the node does not answer: it may come back.
        """
        query = {"timestamps": "true", "container": "task", "follow": json.dumps(follow), **more}
        # A pod may be silent for any length of time.
        total = None if follow else ANSWER_SECONDS
        try:
            with _translated_errors(self):
                response = await self._send(self.api, "GET", f"{self._path('Pod', pod)}/log", query, total=total)
                async for line in response.response.content:
                    yield line.decode(errors="replace").rstrip("\n")
        except (_NotFound, NodeSilent) as error:
            if follow and isinstance(error, NoAnswer):
                raise
            now = datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")
            yield f"{now} trainer: the log of {pod} cannot be read: {error}"

    async def raw_log(self, pod: str, container: str, **more: str) -> AsyncIterator[bytes]:
        """The log of a container in pieces, each line with its time in front.

        Args:
            more: parameters of the API, such as tailLines.
        """
        query = {"timestamps": "true", "container": container, **more}
        with _translated_errors(self):
            response = await self._send(self.api, "GET", f"{self._path('Pod', pod)}/log", query)
            async for chunk in response.response.content.iter_chunked(1 << 16):
                yield chunk

    async def version(self) -> Manifest:
        answer: Manifest = await self._ask("GET", "/version")
        return answer

    async def execute(self, pod: str, *command: str) -> str:
        """Runs a command in a pod's container; returns its output, empty if it cannot run there now."""
        query = [("container", "task"), ("stdout", "true"), *(("command", word) for word in command)]
        async with WsApiClient(self.settings) as api:
            with contextlib.suppress(ClientError, OSError, asyncio.TimeoutError):
                request = self._send(api, "GET", f"{self._path('Pod', pod)}/exec", query)
                return bytes((await asyncio.wait_for(request, ANSWER_SECONDS)).data).decode()
        return ""

    async def forward(self, api: WsApiClient, pod: str, port: int) -> ClientWebSocketResponse:
        """Connects to a port of a pod.

        Raises:
            ConnectionError: the server refuses it, or does not answer.
        """
        path = f"{self._path('Pod', pod)}/portforward"
        ports = [("ports", str(port))]
        request = await api.param_serialize("GET", path, query_params=ports, auth_settings=["BearerToken"])
        try:
            opened: ClientWebSocketResponse = await (await api.call_api(*request, _preload_content=False)).response
        except WSServerHandshakeError as error:
            may = "; the verbs get and create on pods/portforward are needed" if error.status == FORBIDDEN else ""
            raise ConnectionError(f"pods/{pod}: Kubernetes refuses a port-forward ({error.status}){may}") from None
        except (ClientError, OSError) as error:
            raise ConnectionError(f"no Kubernetes answers at {self.settings.host} ({error})") from None
        return opened

    def _path(self, kind: str, name: str = "") -> str:
        path = {**_PATHS, **EXTENSIONS}[kind].format(self.namespace)
        return f"{path}/{name}" if name else path

    async def _ask(self, method: str, path: str, query: dict[str, str] | None = None, body: object = None) -> Any:
        with _translated_errors(self):
            return json.loads(await (await self._send(self.api, method, path, query or {}, body)).read())

    async def _apply(self, method: str, path: str, query: dict[str, str], manifest: Manifest) -> Applied:
        with _translated_errors(self):
            response = await self._send(self.api, method, path, query, manifest)
            await response.read()
        texts = [text for header in response.headers.getall("Warning", []) for text in _WARNING.findall(header)]
        return Applied([re.sub(r"\\(.)", r"\1", text) for text in texts], response.status == CREATED)

    async def _send(
        self,
        api: ApiClient,
        method: str,
        path: str,
        query: dict[str, str] | list[tuple[str, str]],
        body: object = None,
        total: float | None = ANSWER_SECONDS,
    ) -> Any:
        pairs = list(query.items()) if isinstance(query, dict) else query
        kind = "application/apply-patch+yaml" if method == "PATCH" else "application/json"
        headers = {"Content-Type": kind} if body else {}
        request = await api.param_serialize(
            method, path, query_params=pairs, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        timeout = ClientTimeout(total=total, sock_connect=CONNECT_SECONDS)
        for left in reversed(range(BUSY_TRIES + 1)):
            response = await api.call_api(*request, _request_timeout=timeout)
            if response.status != TOO_MANY_REQUESTS or not left:
                break
            # It also says so of a kind whose definition has just changed: "storage is (re)initializing".
            seconds = retry_after_seconds(response)
            await response.read()  # else its connection stays taken
            await asyncio.sleep(1.0 if seconds is None else min(seconds, BUSY_SECONDS))
        if response.status >= 400:
            about = f"{path}/{body['metadata']['name']}" if method == "POST" and isinstance(body, dict) else path
            raise _refusal(response.status, await response.read(), method, about, self.namespace)
        return response


def kind_of(manifest: Manifest) -> str:
    """The kind by which the methods of ApiServer know it: two APIs have a PodGroup."""
    return f"Volcano{manifest['kind']}" if manifest["apiVersion"] == gang.VOLCANO else str(manifest["kind"])


class SignedOut(Refused):
    """The server does not know the user any more: a token has expired."""


class _NotFound(TrainerError):
    pass


class NodeSilent(NoAnswer):
    """The server itself had no answer (5xx), as of a node that is lost."""


class _AlreadyThere(TrainerError):
    pass


class _Forbidden(Refused):
    pass


@contextlib.asynccontextmanager
async def connect(namespace: str | None) -> AsyncIterator[ApiServer]:
    """The cluster of the current kubectl context, or the one around this pod.

    Args:
        namespace: default the context's.

    Raises:
        TrainerError: Exit.TARGET, if there is none, or it cannot be used.
    """
    settings, context = Configuration(), {}
    files = config.KUBE_CONFIG_DEFAULT_LOCATION
    try:
        if any(Path(file).expanduser().exists() for file in files.split(os.pathsep)):
            await config.load_kube_config(client_configuration=settings)
            context = config.list_kube_config_contexts()[1]["context"]
        elif "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(client_configuration=settings)
        else:
            raise ConfigException(f"there is no {files}")
    except (ConfigException, OSError, yaml.YAMLError, ValueError, TypeError, LookupError, AttributeError) as error:
        # The client raises the last four for a YAML file that is no kubeconfig.
        text = " ".join(str(error).split()).rstrip(".")
        raise problem(f"no Kubernetes to connect to ({text[:150]}); set KUBECONFIG, or `make kind-up`") from None
    # Each log that is followed holds a connection.
    settings.connection_pool_maxsize = 0
    async with ApiClient(settings) as api:
        yield ApiServer(settings, api, namespace or context.get("namespace") or "default")


def problem(text: str) -> TrainerError:
    """An error of the target."""
    return TrainerError(text, Exit.TARGET)


@contextlib.contextmanager
def _translated_errors(server: ApiServer) -> Iterator[None]:
    try:
        yield
    except (ClientError, OSError, asyncio.TimeoutError, ValueError) as error:
        text = " ".join(str(error).split()) or "no answer in time"
        raise NoAnswer(
            f"no Kubernetes answers at {server.settings.host} ({text[:150]}); `kubectl cluster-info` must work first"
        ) from None


def _refusal(status: int, body: bytes, method: str, path: str, namespace: str) -> TrainerError:
    """The error that a Status object stands for (https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/)."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = {"message": body.decode(errors="replace")[:150]}
    message = " ".join(str(answer.get("message")).split())
    if message == f'namespaces "{namespace}" not found':
        return problem(f"namespace: {namespace!r}: is not on this cluster; `kubectl create namespace {namespace}`")
    causes = (answer.get("details") or {}).get("causes") or []
    if status == 422 and causes:
        # The message repeats the whole object.
        message = "; ".join(f"{each.get('field')}: {str(each.get('message')).rpartition(': ')[2]}" for each in causes)
    kind, name = path.split("/")[-2:]
    text = f"{kind}/{name}: Kubernetes refuses this ({status}): {message}"
    if status == 409 and method == "POST":
        return _AlreadyThere(text, Exit.TARGET)
    if status >= 500:
        return NodeSilent(text)
    if status in (UNAUTHORIZED, FORBIDDEN):
        return (SignedOut if status == UNAUTHORIZED else _Forbidden)(text)
    return (_NotFound if status == 404 else TrainerError)(text, Exit.TARGET)
