"""`code` of a spec: files that every task gets with the workload file."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import os
import re
import tarfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from trainer.job import workload_file
from trainer.job.data import scheme
from trainer.job.errors import UserError
from trainer.job.messages import RELATIVE
from trainer.job.spec import JobSpec
from trainer.job.strategies import STRATEGIES

PLACE = "/code"
"""The folder in containers that holds the code."""
ARCHIVE = "code.tar.gz"
"""Name of the archive of the code in the ConfigMap of pods, which unpack it."""
LARGEST, MOST = 16 * 1024 * 1024, 1000
"""The most bytes and files of the code: all are read at each start of a child, to compare them (decision 37)."""
MANY = 10 * MOST
"""The search for code ends after this many files: a folder of data may have millions."""
SHOWN = 3

_IGNORED = {"__pycache__", "node_modules", "venv"}
_IGNORED_SUFFIXES = {".pyc", ".log", ".out"}
_FOREIGN = (("pyvenv.cfg",), (".trainer/.lock",), (".lock", "logs"))
"""Files by which folders without code are known: a virtual environment, and the model_dir of any job (layout.py)."""
_RENDERED = "# Written by: trainer "
"""Begins what is rendered from a spec."""
_NAME, _KEY = re.compile(r"^name:", re.MULTILINE), re.compile(r"^(\w+):", re.MULTILINE)
_STRATEGY = re.compile(rf"""^strategy:[ \t]*["']?(?:{"|".join(STRATEGIES)})["']?[ \t]*(?:#|$)""", re.MULTILINE)


def root(spec: JobSpec) -> Path | None:
    """The folder below which the files keep their structure, and which is searched for imports; None without code.

    Raises:
        UserError: a path does not exist, or cannot be read.
    """
    if not spec.code:
        return None
    folders = [] if spec.program else [_absolute(spec.workload).parent]
    for each in map(_absolute, spec.code):
        try:
            each.stat()
        except FileNotFoundError:
            raise UserError(f"code: {str(each)!r}: no such file or folder ({RELATIVE})") from None
        except OSError as error:
            raise _unreadable(error) from None
        folders.append(each if each.is_dir() else each.parent)
    return Path(os.path.commonpath(folders))


def _unreadable(error: OSError) -> UserError:
    return UserError(f"code: {error.filename}: cannot be read: {error.strerror}")


def _absolute(path: str | Path) -> Path:
    return Path(os.path.normpath(Path(path).absolute()))


def files(spec: JobSpec) -> dict[str, Path]:
    """All files of the job's code by their names below `root`: what `code` names, and the workload file with the
    modules beside it that it imports.

    Raises:
        UserError: one cannot be read, or leads out of the folder, or they are too large.
    """
    found, _ = _searched(spec)
    return found


def left_out(spec: JobSpec) -> list[str]:
    """The names of what is below the folders of `code` and is not code.

    Raises:
        UserError: as `files`.
    """
    _, ignored = _searched(spec)
    return sorted({path.name for path in ignored})


def _searched(spec: JobSpec) -> tuple[dict[str, Path], list[Path]]:
    top = root(spec)
    assert top is not None
    data = [each.path for each in spec.data.values() if each.path and not scheme(each.path)]
    secret = [each.file for each in spec.secrets.values() if each.file]
    weights = [spec.init_from.path] if spec.init_from and not spec.init_from.data else []
    arrays = [spec.dataset] if spec.dataset and spec.dataset.endswith(".npz") else []
    others = (*data, *secret, *weights, *arrays, "runs", spec.directory)
    elsewhere = {top / "runs", *map(_absolute, others)}
    workload = Path(spec.workload)
    workload_files = [] if spec.program else [workload, *workload_file.helpers(workload, top)]
    code: dict[str, Path] = {}
    ignored: list[Path] = []
    try:
        for each in (*workload_files, *map(Path, spec.code)):
            for path in _below(_absolute(each), top, elsewhere, ignored):
                code[path.relative_to(top).as_posix()] = path
                if len(code) > MANY:
                    break
        _require_small(code)
    except OSError as error:
        raise _unreadable(error) from None
    return dict(sorted(code.items())), ignored


def _below(path: Path, top: Path, elsewhere: set[Path], ignored: list[Path]) -> Iterator[Path]:
    """The files of a file or folder, without those that are not code, which are `ignored`."""
    if path.is_symlink() and (path.is_dir() or not path.resolve().is_relative_to(top.resolve())):
        what = "a folder" if path.is_dir() else f"a file outside {top}"
        raise UserError(f"code: {str(path)!r}: is a link to {what}, which tasks would not have; copy it to its place")
    if path.is_dir():
        for each in sorted(path.iterdir()):
            if each in elsewhere or _is_ignored(each):
                ignored.append(each)
            else:
                yield from _below(each, top, elsewhere, ignored)
    elif path.is_file():
        if not path.name.isprintable():  # a byte that is no UTF-8 is a surrogate, which nothing can write
            raise UserError(f"code: {str(path)!r}: has a name that cannot be printed; rename it")
        yield path


def _is_ignored(path: Path) -> bool:
    name, suffix = path.name, path.suffix
    if name.startswith(".") or name.endswith("~") or name in _IGNORED or suffix in _IGNORED_SUFFIXES:
        return True
    if path.is_dir():
        return any(all((path / name).exists() for name in names) for names in _FOREIGN)
    if suffix not in (".yaml", ".yml") or not path.is_file():
        return False
    # What this command is rendering is empty so far.
    return _is_spec(path.read_text(errors="replace")) or (not path.stat().st_size and _is_output(path))


def _is_spec(text: str) -> bool:
    """Whether a text is a job spec, or rendered from one: neither is code, because the steps of a spec may change. A
    program's settings may have a name and a strategy too, beside keys of their own."""
    if text.startswith(_RENDERED):
        return True
    return bool(_NAME.search(text) and _STRATEGY.search(text)) and {*_KEY.findall(text)} <= JobSpec.model_fields.keys()


def _is_output(path: Path) -> bool:
    """Whether this command writes its output into a file."""
    for output in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(output), path.stat()):
                return True
    return False


def require_no_output(spec: JobSpec) -> None:
    """Checks that this command does not write its output into the job's code, which would change while the job runs.

    Raises:
        UserError: names the file.
    """
    for path in files(spec).values() if spec.code else ():
        if _is_output(path):
            raise UserError(
                f"code: {str(path)!r}: is the output of this command, so it changes while the job runs; write "
                "it elsewhere, or to a file that ends in .log"
            )


def _require_small(code: Mapping[str, Path]) -> None:
    if (all_bytes := size(code)) > LARGEST or len(code) > MOST:
        count = f"more than {MANY:,}" if len(code) > MANY else f"{len(code):,}"
        raise UserError(
            f"code: {count} files of {all_bytes:,} bytes: at most {MOST:,} of {LARGEST:,} bytes are code; "
            f"{largest(code)}; name folders of data under `data`, or list under `code` only what is code"
        )


def size(code: Mapping[str, Path]) -> int:
    return sum(path.stat().st_size for path in code.values())


def largest(code: Mapping[str, Path]) -> str:
    """The largest files, for messages."""
    sizes = sorted(((path.stat().st_size, name) for name, path in code.items()), reverse=True)
    return f"the largest: {', '.join(f'{name} ({size:,})' for size, name in sizes[:SHOWN])}"


def mounts(spec: JobSpec) -> dict[str, Path]:
    """The fewest files and folders that together are `files`, by their names below `root`: a folder is one of them if
    all that it holds is code."""
    top, found = root(spec), files(spec)
    assert top is not None
    kept: dict[str, Path] = {}
    whole: dict[Path, bool] = {}
    for name, path in found.items():
        within = [top / part for part in Path(name).parents][-2::-1]
        folder = next((each for each in within if whole.setdefault(each, _is_whole(each, found.values()))), None)
        kept |= {name: path} if folder is None else {folder.relative_to(top).as_posix(): folder}
    return kept


def _is_whole(folder: Path, found: Collection[Path]) -> bool:
    there = {path for path in folder.rglob("*") if not path.is_dir() and "__pycache__" not in path.parts}
    return there.issubset(found)


def digests(spec: JobSpec) -> dict[str, str]:
    """SHA-256 of each file or folder at the top of the code, by name.

    Raises:
        UserError, OSError: as `files`.
    """
    tops: dict[str, dict[str, str]] = {}
    for name, path in files(spec).items():
        first, _, rest = name.partition("/")
        tops.setdefault(first, {})[rest] = hashlib.sha256(path.read_bytes()).hexdigest()
    return {name: workload_file.combined(each) for name, each in tops.items()}


def pack(spec: JobSpec) -> bytes:
    """The files as a tar.gz, the same bytes for the same files.

    Raises:
        UserError: as `files`.
    """
    packed = io.BytesIO()
    # Not tarfile's own compression, which writes the time.
    with (
        gzip.GzipFile(filename="", fileobj=packed, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, path in files(spec).items():
            entry, content = tarfile.TarInfo(name), path.read_bytes()
            entry.size, entry.mode = len(content), 0o755 if os.access(path, os.X_OK) else 0o644
            archive.addfile(entry, io.BytesIO(content))
    return packed.getvalue()
