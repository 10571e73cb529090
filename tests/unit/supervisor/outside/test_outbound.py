"""Requests to servers outside of the job."""

import asyncio
import shutil
import ssl
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.tools.receiver import receiver
from trainer.supervisor.outside import outbound
from trainer.supervisor.outside.outbound import Answer


def call(address: str, environ: Mapping[str, str] | None = None, path: str = "", seconds: float = 10) -> Answer:
    async def run() -> Answer:
        async with outbound.connect(address, environ or {}) as server:
            return await server.call("POST", path, b"{}", {"X-Mine": "yes"}, seconds)

    return asyncio.run(run())


def test_a_request_arrives_with_its_path_headers_and_body() -> None:
    with receiver() as server:
        assert call(f"{server.address}/base", path="/more") == Answer(200, b"{}")
    (request,) = server.requests
    assert (request.path, request.headers["X-Mine"], request.body) == ("/base/more", "yes", b"{}")


def test_a_redirection_is_an_answer_and_not_followed() -> None:
    with receiver(302) as server:
        answer = call(server.address)
    assert (answer.status, answer.is_good, answer.is_passing) == (302, False, False)
    assert len(server.requests) == 1


def test_reasons_name_the_server_and_never_the_path(free: int, taken: int) -> None:
    for address, why in [
        (f"http://127.0.0.1:{free}/secret", f"127.0.0.1:{free} refused"),
        (f"http://127.0.0.1:{taken}/secret", f"no answer from 127.0.0.1:{taken}"),
        ("http://no-such-host.invalid/secret", "no-such-host.invalid does not resolve (DNS)"),
    ]:
        with pytest.raises(ConnectionError) as found:
            call(address, seconds=0.5)
        assert str(found.value) == why


@pytest.mark.parametrize("answer", [b"nonsense\r\n\r\n", b""])
def test_what_is_no_http_server_is_named_without_the_path(answer: bytes) -> None:
    async def run(address: str) -> None:
        async with outbound.connect(address, {}) as server:
            await server.call("POST", "/secret", b"{}", {}, 5)

    async def with_server() -> str:
        async def say(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(answer)
            writer.close()

        async with await asyncio.start_server(say, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ConnectionError) as found:
                await run(f"http://127.0.0.1:{port}")
            return str(found.value).replace(str(port), "PORT")

    assert "PORT" in (why := asyncio.run(with_server()))
    assert "secret" not in why


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the key and the certificate of 127.0.0.1, which nobody else has signed."""
    if not shutil.which("openssl"):
        pytest.skip("apt install openssl")
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    words = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=here"
    more = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(file), "-out", f"{file}.crt"]
    subprocess.run([*words.split(), *more], check=True, capture_output=True)
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


def test_only_a_trusted_certificate_is_accepted(certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    with receiver(tls=tls) as server:
        assert call(server.address, {outbound.CERTIFICATES: str(certificate)}).status == 200
        with pytest.raises(ConnectionError) as found:
            call(server.address)
        assert str(found.value).startswith(f"the certificate of 127.0.0.1:{server.port} is not trusted: self")
        assert outbound.CERTIFICATES in str(found.value)
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("environ", "through"),
    [
        ({"HTTP_PROXY": "PROXY"}, True),
        ({"http_proxy": "PROXY"}, True),
        ({"ALL_PROXY": "PROXY"}, True),
        ({"HTTPS_PROXY": "PROXY"}, False),
        ({"HTTP_PROXY": "PROXY", "NO_PROXY": "localhost, 127.0.0.1"}, False),
        ({"HTTP_PROXY": "PROXY", "no_proxy": "*"}, False),
        ({"HTTP_PROXY": "PROXY", "NO_PROXY": "7.0.0.1"}, True),
    ],
)
def test_the_usual_variables_name_a_proxy(environ: dict[str, str], through: bool) -> None:
    with receiver() as server, receiver() as proxy:
        call(f"{server.address}/x", {name: value.replace("PROXY", proxy.address) for name, value in environ.items()})
    assert (len(proxy.requests), len(server.requests)) == (int(through), int(not through))
    if through:
        assert proxy.requests[0].path == f"{server.address}/x"


def test_the_name_of_a_domain_covers_its_hosts() -> None:
    environ = {"HTTP_PROXY": "http://proxy", "NO_PROXY": "cluster.local"}
    assert outbound._proxy("http://mlflow.cluster.local:5000", environ) is None
    assert outbound._proxy("http://mycluster.local", environ) == "http://proxy"


def test_a_machine_without_certificates_trusts_those_of_certifi(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certifi = pytest.importorskip("certifi")
    monkeypatch.setenv(outbound.CERTIFICATES, str(tmp_path / "none"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert not ssl.create_default_context().cert_store_stats()["x509_ca"]
    wanted = ssl.create_default_context(cafile=certifi.where()).cert_store_stats()
    assert outbound._trusted(None).cert_store_stats() == wanted


def test_a_port_is_named_only_if_it_is_given() -> None:
    assert outbound.host_of("https://hooks.example.com/services/secret") == "hooks.example.com"
    assert outbound.host_of("http://127.0.0.1:80/x") == "127.0.0.1:80"


@pytest.mark.parametrize(("limit", "size"), [(1 << 20, 300_000), (1000, 1000)])
def test_an_answer_is_read_whole_up_to_a_limit(monkeypatch: pytest.MonkeyPatch, limit: int, size: int) -> None:
    monkeypatch.setattr(outbound, "LONGEST_ANSWER", limit)
    with receiver() as server:
        server.body = b"x" * 300_000
        assert len(call(server.address).body) == size
