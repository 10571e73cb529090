"""Code outside `code` that a program runs where it is: files and folders that its command and variables name.

Paths cannot be told from every command: a job whose command names code that is not found is never taken for complete.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import shutil
import string
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainer.job import code, program, workload_file
from trainer.job.errors import UserError
from trainer.job.spec import JobSpec

LARGEST_FILE = 1 << 20
"""A larger file is data or a binary: its size and time tell whether it has changed."""

_BETWEEN = re.compile(r"[\s'\"`;&|()<>{}\[\]=:,@]+")
"""What is between paths in a shell's or Python's text, in options and in lists of folders."""
_OPTION = re.compile(r"^-[A-Za-z](?=.)")
"""What is before a path in an option of one letter, as in -c../settings.yaml."""
_SCRIPTS = {".py", ".sh", ".bash"}
_SHELLS = {".sh", ".bash"}
_SETTINGS = {".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".gin"}
_WRAPPERS = {
    "bash",
    "sh",
    "dash",
    "zsh",
    "env",
    "exec",
    "nice",
    "nohup",
    "numactl",
    "setsid",
    "stdbuf",
    "taskset",
    "time",
    "timeout",
}
"""Commands that run nothing but what their words name."""


def digest(spec: JobSpec, environ: Mapping[str, str]) -> str | None:
    """Digest of the job's code and of the code outside it that its programs name; None if that is unknown: there is no
    `code`, or it is too much to compare, or a command names a module or file that is not found.

    Args:
        environ: the variables that the programs inherit.
    """
    if not spec.code:
        return None
    try:
        paths = {path for task_type in spec.tasks.counts() for path in _named(spec, task_type, environ)}
        data = {path for path in paths if path.is_file() and path.stat().st_size > LARGEST_FILE}
        everything = spec.model_copy(update={"code": [*spec.code, *sorted(map(str, paths - data))]})
        digests = code.digests(everything)
        for path in sorted(data):
            status = path.stat()
            digests[str(path)] = hashlib.sha256(f"{status.st_size} {status.st_mtime_ns}".encode()).hexdigest()
    except (OSError, UserError):
        return None
    return workload_file.combined(digests)


def _named(spec: JobSpec, task_type: str, inherited: Mapping[str, str]) -> set[Path]:
    """The files and folders that a type's command and variables name.

    Raises:
        UserError: they name something that is not found.
    """
    environ = program.environ(spec, task_type, inherited)
    words = [program.expand(word, environ) for word in spec.program_of(task_type)]
    folder, top, in_code = program.folder(spec), code.root(spec), set(code.files(spec).values())
    assert top is not None
    folders = [folder]
    """Relative paths are below these: a shell may change to a folder that it names."""
    found: set[Path] = set() if folder.is_relative_to(top) else {folder}
    _require_no_installed(words[0], environ)
    texts = [*words, *program.variables(spec, task_type, inherited).values(), environ.get("PYTHONPATH", "")]
    results = Path(spec.directory).absolute()
    while texts:
        text = string.Template(texts.pop()).safe_substitute(environ)
        for path in _paths(text, folders):
            if path in found or path == folder or path.is_relative_to(results):
                continue
            if path.is_dir() and _has_scripts(path):
                folders.append(path)
                found.add(path)
            elif path.is_dir():
                found.update(_settings(path))
            elif path.is_file():
                found.add(path)
                if _is_shell_script(path):
                    texts.append(path.read_text(errors="replace"))
                elif path.suffix == ".py" or _first_line(path):
                    found |= {*workload_file.helpers(path, folder)} if path in in_code else {path.parent}
    _require_modules(" ".join(words), folders)
    return found


def _paths(text: str, folders: list[Path]) -> Iterator[Path]:
    """The paths of files and folders that a text names, as a whole or in parts.

    Raises:
        UserError: nothing is there that a part names from another folder.
    """
    words = [text, *_BETWEEN.split(text)]
    for part in filter(None, dict.fromkeys([*words, *(_OPTION.sub("", word) for word in words)])):
        places = [Path(os.path.normpath(folder / os.path.expanduser(part))) for folder in folders]  # noqa: PTH111
        there = [place for place in places if _exists(place)]
        if not there and ".." in Path(part).parts and not _BETWEEN.search(part):
            raise UserError(f"program: {part!r}: no such file or folder")
        yield from there


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # a text that is no path, such as one with a name that is too long
        return False


def _has_scripts(folder: Path) -> bool:
    """Whether a folder has scripts, as far as `code` would search it: otherwise it is a folder of data or results."""
    return any(path.suffix in _SCRIPTS for path in _below(folder))


def _settings(folder: Path) -> list[Path]:
    """The files of settings in a folder without scripts; none if there are so many that they are data."""
    settings = [path for path in _below(folder) if path.suffix in _SETTINGS]
    return settings if len(settings) <= code.MOST else []


def _below(folder: Path) -> Iterator[Path]:
    """The files of a folder, as far as `code` would search it."""
    paths = (Path(place, name) for place, _, files in os.walk(folder) for name in files)
    return itertools.islice(paths, code.MANY)


def _first_line(path: Path) -> str:
    with path.open("rb") as file:
        line = file.readline(200).decode(errors="replace")
    return line if line.startswith("#!") else ""


def _is_shell_script(path: Path) -> bool:
    return path.suffix in _SHELLS or ((line := _first_line(path)) != "" and "python" not in line)


def _require_no_installed(first: str, environ: Mapping[str, str]) -> None:
    """Checks that a command's first word is no command of a package or of the system, which runs what it does
    not name, as `make` does.

    Raises:
        UserError: it is one.
    """
    name, folder = Path(first).name, Path(first).parent
    if program.is_python(name) or name in _WRAPPERS:
        return
    path = environ.get("PATH", os.defpath)
    installed = str(folder) in path.split(os.pathsep) or (folder.parent / "pyvenv.cfg").exists()
    if "/" not in first:
        installed = shutil.which(first, path=path) is not None
    if installed:
        raise UserError(f"program: {first!r}: is an installed command")


def _require_modules(command: str, folders: list[Path]) -> None:
    """Checks that the modules of `python -m MODULE` are in the folders or are Python's own.

    Raises:
        UserError: one is neither: it is installed.
    """
    for match in re.finditer(r"\bpython[\d.]*\s+(?:-[XW]\s+\S+\s+|-\S+\s+)*?-[a-zA-Z]*m\s*([\w.]+)", command):
        name = match[1].partition(".")[0]
        there = any((folder / name).is_dir() or (folder / f"{name}.py").is_file() for folder in folders)
        if not there and name not in sys.stdlib_module_names:
            raise UserError(f"program: -m {match[1]}: is a module of an installed package")
