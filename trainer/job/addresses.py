"""Addresses of servers outside of the job, as a spec names them."""

from __future__ import annotations

from urllib.parse import urlsplit

_CHATS = (
    "hooks.slack.com",
    "discord.com/api/webhooks/",
    ".webhook.office.com",
    ".logic.azure.com",
    "chat.googleapis.com",
)
"""Parts of the addresses by which anyone can write to a chat."""


def address_rule(address: str) -> str:
    """Why a text is no address that can be called; empty if it is one."""
    try:
        parts = urlsplit(address)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        return f"is no address: {error}"
    if parts.scheme not in ("http", "https"):
        return "must begin with http:// or https://"
    if not host or any(character.isspace() for character in address):
        return "must be an address: http://HOST:PORT/PATH"
    if parts.username is not None or parts.password is not None:
        return (
            "must not contain a name or password, which manifests and result.json would show; remove what is before @"
        )
    return ""


def without_login(address: str) -> str:
    """An address without the name and password in it, for messages."""
    scheme, slashes, rest = address.rpartition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}" if "@" in host else address


def looks_secret(address: str) -> bool:
    """Whether an address is one that only its owner should know."""
    return any(chat in address for chat in _CHATS)
