"""Signatures by the job's secret: they prove that a report is from one of its tasks, and a reply from its chief."""

from __future__ import annotations

import hmac

HEADER = "Trainer-Signature"
SENDER = "Trainer-Task"
"""The header with the task that a report is of: of one whose signature is wrong, nothing else is read."""
NOT_SIGNED = "lacks this job's secret"
"""The chief's answer, with status 403, to a report whose signature is wrong."""


def sign(secret: bytes, *parts: bytes) -> str:
    """The HMAC-SHA256 of these bytes; empty without a secret."""
    return hmac.digest(secret, b"\0".join(parts), "sha256").hex() if secret else ""


def is_signed(signature: str | None, secret: bytes, *parts: bytes) -> bool:
    """Whether that is the signature of these bytes. Without a secret there must be none."""
    return hmac.compare_digest((signature or "").encode(errors="replace"), sign(secret, *parts).encode())
