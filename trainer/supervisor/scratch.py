"""A temporary folder for each child, which its supervisor removes when the child has ended.

TensorFlow's autograph writes a file for each function that it converts and removes it when the interpreter exits. A
child that is killed never does that (tensorflow/python/autograph/pyct/loader.py).
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
    """A folder for the child with this mark, in the temporary folder of this process; None if none can be made."""
    try:
        folder = Path(tempfile.gettempdir(), _PREFIX + mark.replace(":", "_"))
        folder.mkdir(mode=0o700)
    except OSError:  # such as a full disk, or none that is writable: the child goes on with what there is
        return None
    return folder


async def remove(folder: Path | None) -> None:
    if folder is not None:
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def remove_left_over() -> None:
    """Removes the folders of supervisors that are gone: killed, and their children with them."""
    with contextlib.suppress(OSError):
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            if orphans.supervisor_is_gone(folder.name.removeprefix(_PREFIX).replace("_", ":")):
                await remove(folder)
