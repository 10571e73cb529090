"""The disk of model_dir, in the place of trainer/model_dir/disk.py: in memory, shared by all machines, and lost in part
when the power fails."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.simulation import trace
from tests.simulation.world import Supervisor, World, current

SYNCED_SECONDS = 5.0
"""After this time the kernel has written what nobody asked it to."""


@dataclass
class File:
    body: bytes
    modified: int
    safe: bytes
    """What a loss of power leaves of it."""
    written: float = 0.0


class Lock:
    def __init__(self, disk: Disk, path: str) -> None:
        self._disk, self.path = disk, path

    def close(self) -> None:
        if self._disk.locks.get(self.path) is self:
            del self._disk.locks[self.path]


class Disk:
    def __init__(self, world: World) -> None:
        self.world = world
        self.files: dict[str, File] = {}
        self.locks: dict[str, Lock] = {}
        self.full = self.read_only = False
        self.programs_step = 0
        """That of the newest checkpoint of the user's program."""

    def _found(self, path: Path) -> File:
        if (file := self.files.get(str(path))) is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return file

    def _write(
        self, path: Path, body: bytes, told: bytes | None = None, *, needs_room: bool = True, sync: bool = False
    ) -> None:
        if self.read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        if self.full and needs_room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        old, now = self.files.get(str(path)), self.world.loop.now
        safe = body if sync else old.body if old and now - old.written > SYNCED_SECONDS else old.safe if old else b""
        self.files[str(path)] = File(body, int(now * 1e9) + 1, safe, now)
        current().note(trace.Wrote, file=path.name, content=body if told is None else told)

    def read(self, path: Path, most: int = 0) -> bytes:
        return self._found(path).body

    tail = read

    def replace(self, path: Path, pieces: Iterable[str], *, sync: bool = False) -> None:
        self._write(path, "".join(pieces).encode(), sync=sync)

    def append(self, path: Path, text: bytes) -> None:
        before = self.files[str(path)].body if str(path) in self.files else b""
        self._write(path, before + (b"\n" if before and not before.endswith(b"\n") else b"") + text, text)

    def edit(self, path: Path, change: Callable[[bytes], bytes | None]) -> None:
        before = self._found(path).body
        if (after := change(before)) == before and not self.read_only:
            self.files[str(path)].modified = int(self.world.loop.now * 1e9) + 1
        elif after is not None:
            self._write(path, after, needs_room=False)

    def overwrite(self, path: Path, body: bytes) -> None:
        self._write(path, body if len(body) <= max(4096, len(self._found(path).body)) else b"", needs_room=False)

    def create(self, path: Path, body: bytes) -> None:
        if str(path) in self.files:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
        self._write(path, body)

    def modified(self, path: Path) -> int:
        return self.files[str(path)].modified if str(path) in self.files else 0

    def size(self, path: Path) -> int:
        return len(self.files[str(path)].body) if str(path) in self.files else 0

    def move(self, path: Path, to: Path) -> None:
        self.files[str(to)] = self.files.pop(str(path))

    def remove(self, path: Path) -> None:
        if not self.read_only and self.files.pop(str(path), None) is not None:
            current().note(trace.Wrote, file=path.name, content=b"")

    def make_folder(self, path: Path, *, parents: bool = False) -> None:
        pass

    def is_folder(self, path: Path) -> bool:
        return True

    def names(self, folder: Path) -> list[str]:
        within = f"{folder}/"
        return sorted({path[len(within) :].partition("/")[0] for path in self.files if path.startswith(within)})

    def open_lock(self, path: Path, *, make: bool = True) -> Lock:
        if str(path) not in self.files:
            self._write(path, b"", needs_room=False)
        made = Lock(self, str(path))
        owner: Supervisor = current()
        owner.locks.append(made)
        return made

    def take_lock(self, lock: Lock) -> bool:
        return self.locks.setdefault(lock.path, lock) is lock

    def power_fails(self) -> None:
        """Of what was written within the last seconds, some is lost."""
        for file in self.files.values():
            if self.world.loop.now - file.written < SYNCED_SECONDS and self.world.rng.random() < 0.5:
                file.body = file.safe
