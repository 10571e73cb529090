"""A disk that can be filled."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

SIZE = "32m"


@contextlib.contextmanager
def small(folder: Path) -> Iterator[None]:
    """A file system of its own in a folder. Needs root."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(folder)], check=True)
    folder.chmod(0o777)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> None:
    """Leaves no room in the file system of a folder."""
    with contextlib.suppress(OSError), (folder / "filler").open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))


def empty(folder: Path) -> None:
    """Makes room again."""
    (folder / "filler").unlink()
