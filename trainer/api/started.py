"""Which jobs this user has started from which spec, so that a command that follows one needs neither its --set nor its
--target again. It is a convenience: without the file each command asks for them."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from trainer.model_dir.files import json_object

KEPT = 500
"""Jobs that are remembered, the newest."""


@dataclass(frozen=True)
class Started:
    spec: str
    """The absolute path of its spec."""
    target: str
    job: str
    overrides: tuple[str, ...] = ()
    """Values of the spec that were changed."""
    namespace: str | None = None
    folder: str = ""
    """The working directory, where relative paths in the overrides and model_dir begin."""
    time: float = field(default_factory=time.time)
    """Seconds since the epoch."""


def note(spec: str, target: str, job: str, overrides: Sequence[str], namespace: str | None = None) -> None:
    """Remembers a job that was started; the one before of the same spec and target is forgotten."""
    made = Started(os.path.realpath(spec), target, job, tuple(overrides), namespace, str(Path.cwd()))
    others = [each for each in known() if (each.spec, each.target) != (made.spec, made.target)]
    text = json.dumps({"started": [asdict(each) for each in [*others, made][-KEPT:]]}, indent=1)
    try:
        path = _path()
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
        temporary.touch(0o600)  # overrides may have what only its user should know
        temporary.write_text(text)
        temporary.replace(path)
    except (OSError, RuntimeError):  # no home, or one that cannot be written
        pass


def last(spec: str, among: Collection[str], overrides: Sequence[str] | None = None) -> Started | None:
    """The job that was started last from this spec on one of these targets; None if none is remembered.

    Args:
        overrides: only of a job that was started with these; None: with any.
    """
    path = os.path.realpath(spec)
    found = [each for each in known() if each.spec == path and each.target in among]
    found = [each for each in found if overrides is None or each.overrides == tuple(overrides)]
    return max(found, key=lambda each: each.time, default=None)


def known() -> list[Started]:
    """All that are remembered, the oldest first."""
    try:
        listed = json_object(_path().read_bytes()).get("started")
    except (OSError, RuntimeError):
        return []
    found = []
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict):
            with contextlib.suppress(KeyError, TypeError):  # of another version
                found.append(Started(**{**each, "overrides": tuple(map(str, each["overrides"]))}))
    return found


def _path() -> Path:
    """As the XDG Base Directory Specification has it for state that is to stay."""
    folder = os.environ.get("XDG_STATE_HOME", "")
    return (
        (Path(folder) if Path(folder).is_absolute() else Path.home() / ".local" / "state") / "trainer" / "started.json"
    )
