"""`copy: node` of the spec's data: copies in a folder of the node, which its tasks share (decision 45)."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import hmac
import math
import os
import posixpath
import re
import shutil
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from trainer import clocks
from trainer.job import environment
from trainer.job.data import reads, variable
from trainer.job.errors import TrainerError, UserError
from trainer.job.spec import JobSpec
from trainer.model_dir.regular import document, regular
from trainer.protocol.log_lines import LOG_SECONDS, log_line, log_traceback

if TYPE_CHECKING:
    from trainer.supervisor.task.agent import Agent

SUMS = "SHA256SUMS"
"""In a folder of data: what `sha256sum` prints. A copy is compared with it."""
CHUNK = 4 << 20
REPORT_SECONDS = 1.0
POLL_COPY_SECONDS = 0.5

Report = Callable[[str], None]
Files = dict[str, tuple[int, int]]
"""Size and time in nanoseconds of each file of a folder, by its name in it."""
_SUM = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


class _Stopped(Exception):
    """The task ends before its copies are complete."""


def wanted(spec: JobSpec, task_type: str) -> dict[str, Path]:
    """The folders that a task needs a copy of, by name."""
    if not reads(task_type):
        return {}
    return {name: Path(each.path).absolute() for name, each in spec.data.items() if each.copy == "node" and each.path}


async def keep(agent: Agent, folders: Mapping[str, Path]) -> None:
    """Makes the task's copies, then starts its first child; reports the progress to the chief, and any failure."""
    loop, stop, logged = asyncio.get_running_loop(), threading.Event(), clocks.monotonic()

    def report(text: str) -> None:
        nonlocal logged
        if clocks.monotonic() - logged > LOG_SECONDS:
            log_line(f"{agent.task.name}: {text}")
            logged = clocks.monotonic()
        loop.call_soon_threadsafe(agent.report_copying, text)

    try:
        for name, folder in folders.items():
            copy = await asyncio.to_thread(copied, name, folder, cache(), report, stop.is_set, _key(agent))
            log_line(f"{agent.task.name}: data.{name} is read from the copy {copy}")
            agent.places[variable(name)] = str(copy)
        if agent.task.type != "evaluator":
            await agent.prepare_child()
        agent.report_copying("")
    except TrainerError as error:
        agent.fail(error)
    except Exception as error:  # a defect here must not leave the job waiting
        log_traceback(error)
        agent.fail(TrainerError(f"{agent.task.name}: copying data: unexpected {type(error).__name__}: {error}"))
    finally:
        stop.set()


def _key(agent: Agent) -> bytes:
    """By which the tasks of one start of a job know that one of them has compared a copy; empty without a secret."""
    run = os.environ.get(environment.RUN, "").encode()
    return hmac.digest(agent.secret, b"copy\0" + run, "sha256") if agent.secret and run else b""


def cache() -> Path:
    """The folder of all copies on this node."""
    if given := os.environ.get(environment.CACHE):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainer" / "data"


def copied(name: str, folder: Path, cache: Path, report: Report, stopped: Callable[[], bool], key: bytes = b"") -> Path:
    """The copy of a folder, which is made if the node has none of the same files, or completed if one was interrupted.

    Its name has a digest of the files' names, sizes and times, so that changed data are copied anew. Of a copy that is
    there, the bytes are compared with the data's SHA256SUMS: others may be able to write there.

    Args:
        key: of `_key`: a copy is compared once for all who have it.

    Raises:
        UserError: it cannot be made, or differs from the data's SHA256SUMS.
    """
    try:
        return _copied(name, folder, cache, lambda text: report(f"data.{name}: {text}"), stopped, key)
    except UserError as error:
        raise UserError(f"data.{name}: {error}") from None
    except OSError as error:
        raise UserError(f"data.{name}: copy: {error.filename or cache}: {error.strerror}") from None


def _copied(name: str, folder: Path, cache: Path, report: Report, stopped: Callable[[], bool], key: bytes) -> Path:
    progress = _progress(report, stopped)
    files = _files(folder, progress)
    right = _right(folder, files)
    listing = "".join(f"{file} {size} {mtime}\n" for file, (size, mtime) in files.items()) + repr(right)
    copy = cache / f"{name}-{hashlib.sha256(os.fsencode(listing)).hexdigest()[:12]}"
    cache.mkdir(parents=True, exist_ok=True)
    with _lock(copy.with_name(f"{copy.name}.lock"), progress) as lock:

        def shared(text: str) -> None:
            lock.truncate(0)
            lock.write(text)
            lock.flush()
            report(text)

        _require_own(copy)
        if not copy.exists():
            _copy(folder, files, right, copy, _progress(shared, stopped))
            return copy
        if (there := _in_seconds(_files(copy, progress))) != (here := _in_seconds(files)):
            changed = next(file for file in sorted({*here, *there}) if here.get(file) != there.get(file))
            raise UserError(f"{copy / changed}: was changed after it was copied; remove {copy}")
        if right and not _is_proven(copy, right, key):
            _compare(copy, right, _progress(shared, stopped))
            _prove(copy, right, key)
    return copy


def _require_own(copy: Path) -> None:
    """
    Raises:
        UserError: another user has made the copy, or any user may change it.
    """
    for path in (copy, copy.with_name(f"{copy.name}.part")):
        with contextlib.suppress(FileNotFoundError):
            about = path.lstat()
            if not stat.S_ISDIR(about.st_mode) or about.st_uid not in (0, os.getuid()) or about.st_mode & stat.S_IWOTH:
                raise UserError(
                    f"{path}: is no folder that user {os.getuid()} alone may change (it belongs to user "
                    f"{about.st_uid}, mode {stat.filemode(about.st_mode)}); remove it, or use another folder for copies"
                )


def _compare(copy: Path, right: Mapping[str, str], progress: Report) -> None:
    """
    Raises:
        UserError: a file has other bytes than its sum names.
    """
    total, done = sum((copy / file).stat().st_size for file in right), 0
    for file, sha in right.items():
        whole = hashlib.sha256()
        with open(copy / file, "rb", opener=regular) as content:
            while chunk := content.read(CHUNK):
                whole.update(chunk)
                done += len(chunk)
                progress(f"{done / 1e9:.2f} of {total / 1e9:.2f} GB of the copy compared with {SUMS}")
        if whole.hexdigest() != sha:
            raise UserError(f"{copy / file}: is not the file that {SUMS} names; remove {copy}")


def _is_proven(copy: Path, right: Mapping[str, str], key: bytes) -> bool:
    try:
        proof = document(_proof_of(copy), 1 << 10)
    except OSError:
        return False
    return bool(key) and hmac.compare_digest(proof, _proof(copy, right, key))


def _prove(copy: Path, right: Mapping[str, str], key: bytes) -> None:
    if key:
        with open(_proof_of(copy), "wb", opener=regular) as file:
            file.write(_proof(copy, right, key))


def _proof(copy: Path, right: Mapping[str, str], key: bytes) -> bytes:
    """What only those can write who have the key. A file that is changed has another time of change, which no program
    can set."""
    abouts = ((file, sha, (copy / file).stat()) for file, sha in right.items())
    listing = "".join(
        f"{file} {sha} {about.st_ino} {about.st_size} {about.st_ctime_ns}\n" for file, sha, about in abouts
    )
    return hmac.digest(key, os.fsencode(listing), "sha256").hex().encode()


def _proof_of(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}.compared")


def _progress(report: Report, stopped: Callable[[], bool]) -> Report:
    """A function that reports at most once in REPORT_SECONDS, and raises _Stopped when the task ends."""
    reported = -math.inf

    def progress(text: str) -> None:
        nonlocal reported
        if stopped():
            raise _Stopped
        if clocks.monotonic() - reported > REPORT_SECONDS:
            reported = clocks.monotonic()
            report(text)

    return progress


def _files(folder: Path, progress: Report) -> Files:
    """All files, also those in folders that are links.

    Raises:
        OSError: a folder or file cannot be read.
        UserError: folders without end, or something that is neither a file nor a folder.
    """
    listed: Files = {}
    folders: list[tuple[str, tuple[tuple[int, int], ...]]] = [("", ())]
    while folders:
        place, above = folders.pop()
        about = (folder / place).stat()
        if (own := (about.st_dev, about.st_ino)) in above:
            raise UserError(f"{folder / place}: is a link to a folder above itself; remove the link")
        try:
            entries = os.scandir(folder / place)
        except PermissionError:
            if place == "lost+found/":  # of root, on a volume with ext4
                continue
            raise
        with entries:
            for entry in entries:
                progress(f"{len(listed):,} files found so far")
                if entry.is_dir():
                    folders.append((f"{place}{entry.name}/", (*above, own)))
                elif stat.S_ISREG((about := entry.stat()).st_mode):
                    listed[place + entry.name] = about.st_size, about.st_mtime_ns
                else:
                    raise UserError(f"{entry.path}: is neither a file nor a folder; move it elsewhere")
    return dict(sorted(listed.items()))


def _in_seconds(files: Files) -> Files:
    """The file system of the copy may keep no finer times."""
    return {file: (size, mtime // 10**9) for file, (size, mtime) in files.items()}


@contextlib.contextmanager
def _lock(path: Path, progress: Report) -> Iterator[TextIO]:
    """Holds a lock of the node, which the kernel releases if its holder dies. The file has the holder's progress."""
    with open(path, "a+", opener=regular) as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                file.seek(0)
                progress(f"another task of this node copies it: {file.read()}")
                clocks.pause(POLL_COPY_SECONDS)
        yield file


def _copy(folder: Path, files: Files, right: Mapping[str, str], copy: Path, progress: Report) -> None:
    """Copies file by file; a file counts once it is in the manifest, so that an interrupted copy goes on there."""
    part, before = copy.with_name(f"{copy.name}.part"), _manifest(copy)
    done = {file: sha for file, sha in before.items() if file in files and (part / file).is_file()}
    total = sum(size for size, _ in files.values())
    left = total - sum(files[file][0] for file in done)
    part.mkdir(exist_ok=True)
    _compare(part, {file: right[file] for file in done if file in right}, progress)
    if (free := shutil.disk_usage(part).free) < left:
        raise UserError(f"copy: {left:,} bytes are left to copy, and {part} has {free:,}; free some space")
    begun, todo = clocks.monotonic(), left

    def copying(size: int) -> None:
        nonlocal left
        left -= size
        rate = (todo - left) / 1e6 / max(clocks.monotonic() - begun, 1e-3)
        progress(f"{(total - left) / 1e9:.2f} of {total / 1e9:.2f} GB copied, {rate:.0f} MB/s")

    with open(_manifest_of(copy), "w", encoding="utf-8", errors="surrogateescape", opener=regular) as manifest:
        manifest.writelines(f"{sha}  {file}\n" for file, sha in done.items())
        for file, (size, mtime) in files.items():
            if file in done:
                continue
            copying(0)
            sha = _copy_file(folder / file, part / file, copying)
            if (part / file).stat().st_size != size:
                raise UserError(f"{folder / file}: changed while it was copied; start the job again")
            if right.get(file, sha) != sha:
                raise UserError(
                    f"{folder / file}: SHA-256 is {sha}, {SUMS} has {right[file]}; correct the file, or {SUMS}"
                )
            os.utime(part / file, ns=(mtime, mtime))
            manifest.write(f"{sha}  {file}\n")
            manifest.flush()
    part.rename(copy)


def _copy_file(file: Path, target: Path, copying: Callable[[int], None]) -> str:
    """Copies a file; returns its SHA-256."""
    sha = hashlib.sha256()
    target.parent.mkdir(parents=True, exist_ok=True)
    with file.open("rb") as source, open(target, "wb", opener=regular) as written:
        while chunk := source.read(CHUNK):
            sha.update(chunk)
            written.write(chunk)
            copying(len(chunk))
        written.flush()
        os.fsync(written.fileno())
    return sha.hexdigest()


def _right(folder: Path, files: Files) -> dict[str, str]:
    """SHA-256 by file, of the data's SHA256SUMS; empty without it. The sum of that file itself was taken before it was
    complete, and is ignored.

    Raises:
        UserError: it has lines that `sha256sum` does not print, or names files that are not there.
    """
    right = {}
    for number, line in enumerate(_lines(folder / SUMS), 1):
        if not line.strip():
            continue
        if (found := _SUM.fullmatch(line)) is None:
            raise UserError(
                f"{folder / SUMS}:{number}: {line[:90]!r}: must be 64 hexadecimal digits, two spaces and the name of a "
                "file, as `sha256sum` prints it"
            )
        if (file := posixpath.normpath(found[2])) != SUMS:
            right[file] = found[1].lower()
    if missing := [file for file in right if file not in files]:
        more = f" and {len(missing) - 1:,} more" if missing[1:] else ""
        raise UserError(f"{folder / missing[0]}: is missing, {SUMS} has it{more}; restore the file, or correct {SUMS}")
    return right


def _manifest_of(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}.sha256")


def _manifest(copy: Path) -> dict[str, str]:
    """SHA-256 by file that was copied. The last line may be incomplete."""
    sums = (_SUM.fullmatch(line) for line in _lines(_manifest_of(copy)))
    return {each[2]: each[1] for each in sums if each}


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    return text.decode("utf-8", "surrogateescape").replace("\r\n", "\n").split("\n")
