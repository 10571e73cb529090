"""Who may see the page of a job, and its stacks, and the headers that keep its browser from anything else.

The page shows the logs and the spec of a job. A browser may be made to ask for it by any other page that it shows, also
by one whose name has been made to mean this machine (DNS rebinding); so a request must come from this machine, name it,
and not come from another page. Nothing can be changed by a request.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LOOPBACK = ("127.0.0.1", "::1")
"""Addresses of requests of this machine. Not all of 127.0.0.0/8: the proxy of a service mesh passes on the requests of
other pods from 127.0.0.6."""


def refusal(
    remote: str | None, path: str, headers: Mapping[str, str], names: Collection[str] | None = None
) -> str | None:
    """Why a request is not answered; None if it is.

    Args:
        remote: the address that it comes from.
        names: names of this machine by which it may be asked from other machines; None if only this one may ask.
    """
    host = headers.get("Host", "")
    if names is None and remote not in _LOOPBACK:
        return "only programs of this machine, or container, may ask: use `trainer ui` or `trainer stacks` there"
    if not _is_ours(_name_in(host), names):
        return _not_ours(host)
    origin = headers.get("Origin")
    if origin is not None and origin.partition("://")[2] != host:
        return f"Origin: {origin[:100]!r}: is another page"
    site = headers.get("Sec-Fetch-Site", "none")
    follows_link = path == "/" and headers.get("Sec-Fetch-Mode") == "navigate"  # whose page cannot read this one
    if site not in ("none", "same-origin") and not follows_link:
        return f"Sec-Fetch-Site: {site[:100]!r}: is another page"
    return None


def foreign_name(remote: str | None, host: str, names: Collection[str]) -> str | None:
    """Why a request to what is public is not answered: a browser of this machine asks under a name that a foreign DNS
    server has made to mean this machine. None if it is answered.

    Args:
        remote: as in refusal.
        names: of the job's machines.
    """
    if remote in _LOOPBACK and host and not _is_ours(_name_in(host), names):
        return _not_ours(host)
    return None


def _not_ours(host: str) -> str:
    return f"Host: {host[:100]!r}: is not the name of this machine; use http://localhost"


def _is_ours(name: str, names: Collection[str] | None) -> bool:
    """Whether a name cannot be one that a foreign DNS server resolves to this machine."""
    if name == "localhost" or name in (names or ()):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return names is not None or str(address) in _LOOPBACK


def _name_in(host: str) -> str:
    """The host without its port: of `[::1]:3222` it is `::1`."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if ":" in host else host
