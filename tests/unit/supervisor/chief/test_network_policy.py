"""The chief's check that the NetworkPolicy is enforced, with a TLS server in place of the API server."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.supervisor.ports import HOST
from trainer.supervisor.chief import network_policy

ELSEWHERE = "192.0.2.7"
"""A node other than that of the API server (RFC 5737)."""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As an API server has it: for its Service, and for its node, which is this machine."""
    if not (openssl := shutil.which("openssl")):
        pytest.skip("openssl is not installed: it makes the server's certificate")
    file = tmp_path_factory.mktemp("tls") / "server.pem"
    names = f"subjectAltName=DNS:kubernetes.default,IP:10.96.0.1,IP:{HOST}"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=kube-apiserver", "-addext", names]
    subprocess.run(
        [openssl, *words, "-keyout", file, "-out", file.with_suffix(".crt")], check=True, capture_output=True
    )
    file.write_bytes(file.read_bytes() + file.with_suffix(".crt").read_bytes())
    return file


@contextlib.asynccontextmanager
async def api_server(certificate: Path, connections: int = 100) -> AsyncIterator[dict[str, str]]:
    """A pod's environment, with a server that goes after so many connections, as if a policy cut it off."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    left = connections

    def connected(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal left
        left -= 1
        if not left:
            server.close()
        writer.close()

    server = await asyncio.start_server(connected, HOST, 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    yield {network_policy.HOST: HOST, network_policy.PORT: str(port), "TRAINER_NODE_IP": ELSEWHERE}
    server.close()


async def warning(environ: dict[str, str]) -> str | None:
    return await network_policy.warning(environ, pauses=(0.01, 0.01))


def test_a_pod_that_reaches_the_api_server_again_and_again_is_not_isolated(certificate: Path) -> None:
    async def run() -> None:
        async with api_server(certificate) as environ:
            found = await warning(environ)
            assert found is not None
            assert found.startswith(
                f"this pod can connect to the API server ({HOST}:{environ[network_policy.PORT]}), which"
            )
            assert "\n" not in found

    asyncio.run(run())


def test_a_policy_that_comes_late_is_enforced(certificate: Path) -> None:
    async def run() -> None:
        async with api_server(certificate, connections=1) as environ:
            assert await warning(environ) is None

    asyncio.run(run())


def test_an_api_server_on_the_pods_own_node_proves_nothing(certificate: Path) -> None:
    async def run() -> None:
        async with api_server(certificate) as environ:
            for node in (HOST, "10.96.0.1", "no address"):
                assert await warning({**environ, "TRAINER_NODE_IP": node}) is None
            assert await warning({**environ, "TRAINER_NODE_IP": "2001:db8::7"}) is not None

    asyncio.run(run())


def test_a_door_that_only_opens_proves_nothing(taken: int, free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the proxy of a service mesh does, or as nothing does."""
    monkeypatch.setattr(network_policy, "ANSWER_SECONDS", 0.2)
    for port in (taken, free):
        environ = {network_policy.HOST: HOST, network_policy.PORT: str(port), "TRAINER_NODE_IP": ELSEWHERE}
        assert asyncio.run(warning(environ)) is None


@pytest.mark.parametrize("missing", [network_policy.HOST, network_policy.PORT, "TRAINER_NODE_IP"])
def test_nothing_is_tried_elsewhere(missing: str, certificate: Path) -> None:
    async def run() -> None:
        async with api_server(certificate) as environ:
            environ.pop(missing)
            assert await warning(environ) is None

    asyncio.run(run())
