"""Logs whose size is limited: a file that is full becomes the earlier one, in place of that before."""

from __future__ import annotations

import os
from pathlib import Path

MOST_BYTES = 16 << 20
"""The size from which a file is full."""
_SUFFIX = ".1"


def earlier(log: Path) -> Path:
    """The earlier file of a log: worker-0.1.log of worker-0.log."""
    return log.with_suffix(f"{_SUFFIX}{log.suffix}")


def name(log: Path) -> str:
    """The name of a log without its suffix, and of its earlier file the same."""
    return log.stem.removesuffix(_SUFFIX)


def set_aside_if_full(log: Path, descriptor: int) -> bool:
    """Gives a full log the name of the earlier one; returns whether the descriptor is no longer that of the log, also
    because another writer has set it aside.

    Raises:
        OSError: it cannot be renamed.
    """
    if os.fstat(descriptor).st_size <= MOST_BYTES:
        return False
    if os.path.samestat(os.fstat(descriptor), log.stat()):
        log.replace(earlier(log))
    return True
