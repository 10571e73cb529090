"""Names that nobody else has, for processes and files; a simulated world makes its own."""

from __future__ import annotations

import uuid


def new() -> str:
    return uuid.uuid4().hex
