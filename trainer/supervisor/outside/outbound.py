"""Requests to a server outside of the job, such as a webhook. An address may be a secret: no error names its path."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from aiohttp import ClientConnectorCertificateError, ClientError, ClientSession, ClientTimeout, TCPConnector

from trainer.supervisor.control_port import peers

CERTIFICATES = "SSL_CERT_FILE"
"""The variable with a file of certificates to trust in place of the system's, as OpenSSL reads it."""
LONGEST_ANSWER = 1 << 24
_PORTS = {"http": 80, "https": 443}


class Answer(NamedTuple):
    status: int
    body: bytes

    @property
    def is_good(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_passing(self) -> bool:
        """Whether the same request may succeed later."""
        return self.status >= 500 or self.status in (408, 425, 429)


class Outbound:
    """One server. Made by `connect`."""

    def __init__(self, address: str, session: ClientSession, proxy: str | None) -> None:
        self._address, self._session, self._proxy = address, session, proxy
        self.host = host_of(address)

    async def call(self, method: str, path: str, body: bytes, headers: Mapping[str, str], seconds: float) -> Answer:
        """Sends one request, and follows no redirection, which would turn a POST into a GET.

        Args:
            path: appended to the address.

        Raises:
            ConnectionError: there is no answer; the reason in a few words.
        """
        try:
            async with self._session.request(
                method, f"{self._address}{path}", data=body, headers=dict(headers), proxy=self._proxy,
                timeout=ClientTimeout(total=seconds), allow_redirects=False,
            ) as response:  # fmt: skip
                body = b""
                async for chunk in response.content.iter_any():
                    body += chunk
                    if len(body) >= LONGEST_ANSWER:
                        break
                return Answer(response.status, body[:LONGEST_ANSWER])
        except (ClientError, OSError, asyncio.TimeoutError, ValueError) as error:
            raise ConnectionError(self._explain(error)) from None

    def _explain(self, error: BaseException) -> str:
        if isinstance(error, ClientConnectorCertificateError):
            why = getattr(error.certificate_error, "verify_message", "") or "it does not fit"
            return f"the certificate of {self.host} is not trusted: {why}; name the right ones in {CERTIFICATES}"
        parts = urlsplit(self._proxy or self._address)
        return peers.explain(error, (parts.hostname or "", parts.port or _PORTS.get(parts.scheme, 0)))


@contextlib.asynccontextmanager
async def connect(address: str, environ: Mapping[str, str]) -> AsyncIterator[Outbound]:
    """A client of the server at an http or https address.

    Args:
        environ: its variables name proxies and certificates.
    """
    # In a thread: the system's certificates take tens of milliseconds to read.
    tls = await asyncio.to_thread(_trusted, environ.get(CERTIFICATES)) if address.startswith("https:") else None
    connector = TCPConnector(ssl=tls) if tls else TCPConnector()
    async with ClientSession(connector=connector, trust_env=False) as session:
        yield Outbound(address, session, _proxy(address, environ))


def host_of(address: str) -> str:
    """The part of an address that is no secret."""
    parts = urlsplit(address)
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _trusted(file: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    with contextlib.suppress(OSError):  # then the server's certificate is not trusted, and the error names the variable
        if file:
            context = ssl.create_default_context(cafile=file)
        elif not context.cert_store_stats()["x509_ca"]:
            # Debian's slim image has no certificates. TensorFlow brings this package, in whichever version.
            import certifi

            context.load_verify_locations(certifi.where())
    return context


def _proxy(address: str, environ: Mapping[str, str]) -> str | None:
    """The proxy to use, by the variables that curl reads."""
    names = {name.lower(): value for name, value in environ.items() if name.lower().endswith("_proxy") and value}
    parts = urlsplit(address)
    direct = [each.strip().removeprefix(".").lower() for each in names.get("no_proxy", "").split(",")]
    host = parts.hostname or ""
    if "*" in direct or any(host == each or host.endswith(f".{each}") for each in direct if each):
        return None
    return names.get(f"{parts.scheme}_proxy") or names.get("all_proxy")
