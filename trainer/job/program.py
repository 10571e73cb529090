"""The user's own program: its words, its folder, and whether it can be started here."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path

from trainer.job import code
from trainer.job.errors import UserError
from trainer.job.messages import nearest
from trainer.job.spec import JobSpec

_VARIABLE = re.compile(r"\$(\$|\(([^()]*)\))")
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_ANY_PYTHON = ("python", "python3")
"""Names of an interpreter that may have any version."""


def expand(text: str, environ: Mapping[str, str]) -> str:
    """Replaces $(NAME) by that variable, as Kubernetes does in a container's command: an unknown name stays as it is,
    and $$ is a dollar sign (third_party/forked/golang/expansion/expand.go)."""

    def value(match: re.Match[str]) -> str:
        return "$" if match[1] == "$" else environ.get(match[2], match[0])

    return _VARIABLE.sub(value, text)


def unknown(words: list[str], environ: Mapping[str, str]) -> list[str]:
    """The names that `expand` leaves as they are."""
    names = [match[2] for word in words for match in _VARIABLE.finditer(word) if match[1] != "$"]
    return [name for name in dict.fromkeys(names) if name not in environ]


def variables(spec: JobSpec, task_type: str, environ: Mapping[str, str]) -> dict[str, str]:
    """`env` of the spec for tasks of a type; a value may refer to the variables of `environ` and to those before it."""
    made: dict[str, str] = {}
    for name, value in spec.env_of(task_type).items():
        made[name] = expand(value, {**environ, **made})
    return made


def environ(spec: JobSpec, task_type: str, inherited: Mapping[str, str]) -> dict[str, str]:
    """The variables of a program: the inherited ones, PATH with the folder of `python` first, also for programs that
    the program starts, and `env` of the spec."""
    path = {}
    if spec.python:
        path["PATH"] = os.pathsep.join((str(Path(spec.python).parent), inherited.get("PATH", os.defpath)))
    with_path = {**inherited, **path}
    return {**with_path, **variables(spec, task_type, with_path)}


def folder(spec: JobSpec) -> Path:
    """The folder where the program starts: absolute.

    Raises:
        UserError: as code.root.
    """
    return (code.root(spec) or Path()).joinpath(spec.working_dir or "").absolute()


def is_python(word: str) -> bool:
    return _PYTHON.fullmatch(word) is not None


def interpreter(spec: JobSpec, words: list[str], environ: Mapping[str, str]) -> str | None:
    """The Python whose packages the program uses, as far as its first word shows; None if there is none."""
    if spec.python and (words[0] in _ANY_PYTHON or not is_python(Path(words[0]).name)):
        return spec.python
    name = words[0] if is_python(Path(words[0]).name) else "python3"
    return shutil.which(name, path=environ.get("PATH")) or shutil.which("python", path=environ.get("PATH"))


def command(spec: JobSpec, words: list[str], environ: Mapping[str, str]) -> list[str]:
    """The program's words as they are executed in `folder`: the first is a path.

    Raises:
        UserError: the folder or the program is not there, or the program cannot be executed.
    """
    working_dir = folder(spec)
    if not working_dir.is_dir():
        rule = "no such folder; name one in `code`, or an absolute path in the image"
        raise UserError(f"working_dir: {str(working_dir)!r}: {rule}")
    first, *rest = [expand(word, environ) for word in words]
    if spec.python and first in _ANY_PYTHON:
        first = spec.python
    path = executable(first, working_dir, environ)
    _require_script(working_dir, [first, *rest])
    return [path, *rest]


def require_scripts(spec: JobSpec) -> None:
    """Checks that the code has the script of each task's program, if the job has programs and as far as their words
    show.

    Raises:
        UserError: names a script that is not there.
    """
    if not spec.program or not spec.code or Path(spec.working_dir or "").is_absolute():
        return  # an image may have it
    for task_type in spec.tasks.counts():
        words = spec.program_of(task_type)
        in_image = any(word.startswith("/") for word in words[1:2])
        if not in_image and "$" not in "".join(words[:2]):
            _require_script(folder(spec), words)


def _require_script(working_dir: Path, words: list[str]) -> None:
    first, script = [*words, ""][:2]
    if is_python(Path(first).name) and script.endswith(".py") and not (working_dir / script).is_file():
        known = [path.name for path in working_dir.glob("*.py")]
        raise UserError(f"program: {script!r}: no such file in {working_dir}{nearest(Path(script).name, known)}")


def executable(first: str, working_dir: Path, environ: Mapping[str, str], setting: str = "program") -> str:
    """The path of the program that a command's first word names: in PATH, or relative to `place`.

    Raises:
        UserError: it is not there, or cannot be executed; the message begins with the setting.
    """
    path = environ.get("PATH", os.defpath)
    if "/" not in first:
        if (found := shutil.which(first, path=path)) is None:
            apart = f"; write its words apart: [{', '.join(first.split())}]" if " " in first else ""
            raise UserError(f"{setting}: {first!r}: no such command in PATH ({path}){apart}")
        return found
    found = str(working_dir / first)
    if Path(found).is_dir():
        raise UserError(f"{setting}: {first!r}: is a folder; name a file in it")
    if not Path(found).is_file():
        raise UserError(
            f"{setting}: {first!r}: no such file{'' if Path(first).is_absolute() else f' in {working_dir}'}"
        )
    if not os.access(found, os.X_OK):
        raise UserError(
            f"{setting}: {first!r}: is not executable: run `chmod +x {found}`, or name its interpreter first"
        )
    return found


def not_started(path: str, error: OSError) -> UserError:
    """Explains why the system did not execute a file that is there."""
    if error.errno not in (errno.ENOEXEC, errno.ENOENT, errno.EACCES) or error.filename is None:
        return UserError(f"program: {path}: {error.strerror or error}; look at memory, processes and disk")
    with contextlib.suppress(OSError), Path(path).open("rb") as file:
        if (first := file.readline(200).decode(errors="replace")).startswith("#!"):
            what = "may not be executed" if error.errno == errno.EACCES else "is not there"
            return UserError(f"program: {path}: its interpreter {what}: {first.rstrip(chr(10))!r}")
    rule = f"is no program of this machine ({error.strerror}); if it is a script, begin it with #!/bin/sh or the like"
    return UserError(f"program: {path}: {rule}")
