"""What a job takes from this machine: folders of data, files, and the values of `secrets`, which are never printed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from trainer.debug.redaction import PASSWORD_IN_URL
from trainer.job import data
from trainer.job.errors import UserError
from trainer.job.messages import RELATIVE
from trainer.job.names import SECRET_LIKE
from trainer.job.spec import JobSpec, Outside
from trainer.model_dir import init_files


def require_data(spec: JobSpec) -> None:
    """Checks the folders of data, and the file of init_from.

    Raises:
        UserError: names what is missing.
    """
    data.require_here(spec.data)
    init_files.require_here(spec)


def require_dataset(spec: JobSpec) -> None:
    """Checks the .npz file of `dataset`; not for compose, whose files may be rendered for another machine.

    Raises:
        UserError: it is not on this machine.
    """
    if not (spec.dataset and spec.dataset.endswith(".npz")):
        return
    try:
        problem = "" if Path(spec.dataset).is_file() else "no such file on this machine"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    if problem:
        raise UserError(f"dataset: {spec.dataset!r}: {problem} ({RELATIVE})")


def require_named(spec: JobSpec) -> None:
    """Checks all of `require_data` and `require_dataset`, but data that only pods find may have no folder here."""
    require_dataset(spec)
    data.require_here({name: each for name, each in spec.data.items() if each.path})
    if (weights := spec.init_from) and (weights.data is None or spec.data[weights.data].path):
        init_files.require_here(spec)


def secret_values(spec: JobSpec, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The values of a spec's secrets by variable, from their files or from our environment.

    Raises:
        UserError: one is missing or empty; all problems at once.
    """
    secrets = {name: _value(name, source, environ) for name, source in spec.secrets.items()}
    if problems := [problem for _, problem in secrets.values() if problem]:
        raise UserError(*problems)
    return {name: value for name, (value, _) in secrets.items()}


def known_secrets(spec: JobSpec | None, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Values that must never be shown, by name: those of a spec's secrets that can be had here, and those of our
    environment that look like secrets, or are addresses with a password."""
    ours = {name: value for name, value in environ.items() if SECRET_LIKE.search(name) or PASSWORD_IN_URL.search(value)}
    secrets = {name: _value(name, source, environ)[0] for name, source in spec.secrets.items()} if spec else {}
    return {**ours, **{name: value for name, value in secrets.items() if value}}


def _value(name: str, source: Outside, environ: Mapping[str, str]) -> tuple[str, str]:
    """The value of a secret, and what is wrong with it."""
    path = f"secrets.{name}"
    if source.file is None:
        value = environ.get(name, "")
        rule = f"the variable {name} is not set here, or is empty; export it, or name a file: {{file: PATH}}"
    else:
        path, rule = f"{path}.file: {source.file!r}", "is empty"
        try:
            value = Path(source.file).expanduser().read_text(encoding="utf-8").rstrip("\r\n")
        except (OSError, ValueError) as error:
            value, rule = "", f"cannot be read: {getattr(error, 'strerror', None) or 'is no text'}"
    if not value:
        return "", f"{path}: {rule}"
    return value, f"{path}: holds a zero byte, which no environment variable can" if "\0" in value else ""
