"""A temporary folder for each child, which its supervisor removes when the child has ended.

TensorFlow's AutoGraph writes a file for each function that it converts and removes it when the interpreter exits. A
killed child does not remove them (tensorflow/python/autograph/pyct/loader.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from pathlib import Path

from trainer.supervisor import orphans

_PREFIX = "trainer_"


def make(mark: str) -> Path | None:
    """Creates a folder for the child with this mark in this process's temporary folder; None if that fails."""
    try:
        folder = Path(tempfile.gettempdir(), _PREFIX + mark.replace(":", "_"))
        folder.mkdir(mode=0o700)
    except OSError:  # such as a full disk, or no writable folder: the child uses the default
        return None
    return folder


async def remove(folder: Path | None) -> None:
    if folder is not None:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def remove_left_over() -> None:
    """Removes the folders of supervisors that were killed together with their children."""
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            if orphans.supervisor_is_gone(folder.name.removeprefix(_PREFIX).replace("_", ":")):
                await remove(folder)
