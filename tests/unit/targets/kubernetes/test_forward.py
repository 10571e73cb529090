"""Port-forwards to pods of an API server that speaks as Kubernetes does, and of one that refuses."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import pytest
import yaml
from aiohttp import WSMsgType, web
from kubernetes.aio import config
from kubernetes.aio.config import kube_config

from trainer.targets.kubernetes.forward import tunnel
from trainer.targets.tunnel import Dial

T = TypeVar("T")
Forward: TypeAlias = "Callable[[web.WebSocketResponse], Awaitable[None]]"
DATA, ERROR = b"\x00", b"\x01"
PORT = (3222).to_bytes(2, "little")


def pod(name: str, created: int, state: str = "running") -> dict[str, Any]:
    labels = {"app.kubernetes.io/component": "chief", "batch.kubernetes.io/job-completion-index": "0"}
    status = {"containerStatuses": [{"name": "task", "state": {state: {}}}]}
    return {
        "metadata": {"name": name, "labels": labels, "creationTimestamp": f"2026-11-25T00:00:0{created}Z"},
        "spec": {"containers": []},
        "status": status,
    }


class Cluster:
    """What the API server answers."""

    def __init__(self) -> None:
        self.pods = [pod("j-chief-0-old", 1), pod("j-chief-0-new", 2)]
        self.forward: Forward = echo
        self.asked: list[str] = []
        """Pods to which a port was forwarded, with their port."""
        self.expired: set[str] = set()
        """Tokens."""
        self.forbidden = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.headers.get("Authorization") in self.expired:
            return web.json_response({"message": "Unauthorized"}, status=401)
        kind = request.path.rpartition("/")[2]
        if kind == "portforward":
            if self.forbidden:
                return web.Response(status=403)
            self.asked.append(f"{request.path.split('/')[-2]}:{request.query['ports']}")
            socket = web.WebSocketResponse(protocols=["v4.channel.k8s.io"])
            await socket.prepare(request)
            for channel in (DATA, ERROR):
                await socket.send_bytes(channel + PORT)
            await self.forward(socket)
            return socket
        labels = {"app.kubernetes.io/component": "chief", "app.kubernetes.io/instance": "j"}
        job = {"metadata": {"name": "j-chief", "uid": "1", "labels": labels}, "spec": {"completions": 1}, "status": {}}
        items = {"pods": self.pods, "jobs": [job]}
        return web.json_response(
            {"items": items[kind]} if kind in items else {"message": "no"}, status=200 if kind in items else 404
        )


async def echo(socket: web.WebSocketResponse) -> None:
    async for message in socket:
        if message.type is WSMsgType.BINARY:
            await socket.send_bytes(message.data)


@contextlib.asynccontextmanager
async def opened(cluster: Cluster, folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Dial]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", cluster.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    for module in (config, kube_config):  # it reads KUBECONFIG when it is imported
        monkeypatch.setattr(module, "KUBE_CONFIG_DEFAULT_LOCATION", str(folder / "config"))
    sign_in(folder, runner.addresses[0][1], "first")
    try:
        async with tunnel("j", None)() as dial:
            yield dial
    finally:
        await runner.cleanup()


def sign_in(folder: Path, port: int, token: str) -> None:
    context = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": token}}],
    }
    (folder / "config").write_text(yaml.safe_dump(context))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@pytest.fixture
def through(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Runs a function of the tunnel's `dial`."""

    def run(use: Callable[[Dial], Awaitable[T]]) -> T:
        async def within() -> T:
            async with opened(cluster, tmp_path, monkeypatch) as dial:
                return await use(dial)

        return asyncio.run(asyncio.wait_for(within(), 30))

    return run


def test_bytes_go_to_the_control_port_of_the_newest_pod_and_come_back(cluster: Cluster, through: Any) -> None:
    async def use(dial: Dial) -> list[bytes]:
        streams = [await dial() for _ in range(3)]
        for number, stream in enumerate(streams):
            await stream.write(b"%d" % number)
        found = [await stream.read() for stream in streams]
        for stream in streams:
            await stream.close()
        return found

    assert through(use) == [b"0", b"1", b"2"]
    assert cluster.asked == ["j-chief-0-new:3222"] * 3


def test_a_chief_that_has_moved_is_found_in_its_next_pod(cluster: Cluster, through: Any) -> None:
    async def use(dial: Dial) -> None:
        await (await dial()).close()
        cluster.pods.append(pod("j-chief-0-next", 3))
        await (await dial()).close()

    through(use)
    assert cluster.asked == ["j-chief-0-new:3222", "j-chief-0-next:3222"]


def test_what_comes_before_the_end_is_read_before_it(cluster: Cluster, through: Any) -> None:
    async def answer(socket: web.WebSocketResponse) -> None:
        await socket.receive()
        await socket.send_bytes(DATA + b"all")
        await socket.send_bytes(DATA)
        await socket.send_bytes(DATA + b" of it")

    cluster.forward = answer

    async def use(dial: Dial) -> list[bytes]:
        stream = await dial()
        await stream.write(b"x")
        return [await stream.read() for _ in range(3)]

    assert through(use) == [b"all", b" of it", b""]


def test_a_port_on_which_nobody_listens_is_an_error_with_the_reason(cluster: Cluster, through: Any) -> None:
    async def refuse(socket: web.WebSocketResponse) -> None:
        await socket.send_bytes(ERROR + b"connection refused")

    cluster.forward = refuse

    async def use(dial: Dial) -> None:
        stream = await dial()
        with pytest.raises(ConnectionError, match=r"^connection refused$"):
            await stream.read()
        await stream.close()

    through(use)


@pytest.mark.parametrize("state", ["waiting", "terminated"])
def test_a_chief_that_does_not_run_has_no_page(state: str, cluster: Cluster, through: Any) -> None:
    cluster.pods.append(pod("j-chief-0-next", 3, state))
    assert failure(through) == "the chief does not run"


def test_without_the_right_to_it_the_verb_that_is_needed_is_named(cluster: Cluster, through: Any) -> None:
    cluster.forbidden = True
    assert failure(through) == (
        "pods/j-chief-0-new: Kubernetes refuses a port-forward (403); the verbs get and create on pods/portforward "
        "are needed"
    )


def failure(through: Any) -> str:
    async def use(dial: Dial) -> str:
        with pytest.raises(ConnectionError) as caught:
            await dial()
        return str(caught.value)

    found: str = through(use)
    return found


def test_a_token_that_has_expired_is_renewed(cluster: Cluster, through: Any, tmp_path: Path) -> None:
    """As those of clouds, which last minutes."""

    async def use(dial: Dial) -> None:
        await (await dial()).close()
        cluster.expired.add("Bearer first")
        found = yaml.safe_load((tmp_path / "config").read_text())
        sign_in(tmp_path, int(found["clusters"][0]["cluster"]["server"].rpartition(":")[2]), "second")
        await (await dial()).close()

    through(use)
    assert len(cluster.asked) == 2


def test_a_user_who_stays_unknown_is_an_error(cluster: Cluster, through: Any) -> None:
    async def use(dial: Dial) -> None:
        cluster.expired.add("Bearer first")
        with pytest.raises(ConnectionError, match=r"Kubernetes refuses this \(401\)"):
            await dial()

    through(use)
