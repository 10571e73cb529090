"""The Python that runs a program: its packages' versions, found without importing them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from trainer import __version__, host
from trainer.job import program
from trainer.job.spec import JobSpec

START_SECONDS = 30.0
"""How long an interpreter may take to start."""
ALONE = Path(__file__).with_name("alone")
"""A folder whose only module becomes the package trainer when it is imported: where that lies, there are packages of
the supervisor, which are not the program's."""
_PACKAGES = {**host.PACKAGES, "tf_keras": ("tf-keras", "tf-keras-nightly")}
_PROBE = """
import importlib.util, json, os, sys
found = {}
for folder in sys.path:
    try:
        names = os.listdir(folder or ".")
    except OSError:
        continue
    for stem, _, kind in (name.rpartition(".") for name in names):
        if kind in ("dist-info", "egg-info"):
            name, _, version = stem.partition("-")
            found.setdefault(name.lower().replace("_", "-"), version.partition("-")[0] or "unknown")
def version(*names):
    return next((found[name] for name in names if name in found), "absent")
print(json.dumps({
    "versions": {package: version(*names) for package, names in json.loads(sys.argv[1]).items()},
    "python": "%d.%d" % sys.version_info[:2],
    "has_trainer": importlib.util.find_spec("trainer") is not None,
}))
"""
"""Versions are in the names of the folders with metadata; importlib.metadata finds the same, and takes 60 ms more."""


def probe(
    spec: JobSpec, task_type: str, environ: Mapping[str, str], meanwhile: Callable[[], None] = lambda: None
) -> tuple[dict[str, str], bool]:
    """The versions that all tasks must share, and whether the program can import trainer.

    Args:
        environ: of the program.
        meanwhile: called while the interpreter looks.
    """
    words = [program.expand(word, environ) for word in spec.program_of(task_type)]
    interpreter = program.interpreter(spec, words, environ)
    try:
        with subprocess.Popen(
            [interpreter or sys.executable, "-c", _PROBE, json.dumps(_PACKAGES)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=dict(environ),
            cwd=program.folder(spec),
        ) as process:
            try:
                meanwhile()
                output, _ = process.communicate(timeout=START_SECONDS)
            finally:
                process.kill()  # without effect if it has ended
        answer = json.loads(output.splitlines()[-1])
        versions, python, has_trainer = answer["versions"], answer["python"], answer["has_trainer"]
    except (OSError, subprocess.SubprocessError, ValueError, KeyError, IndexError, TypeError):
        return {**dict.fromkeys(_PACKAGES, "unknown"), "trainer": __version__, "python": "unknown"}, True
    return {**versions, "trainer": __version__, "python": python}, bool(has_trainer)


def python_path(environ: Mapping[str, str]) -> dict[str, str]:
    """PYTHONPATH with a folder in which this trainer is found, as the last one, so that it hides nothing of the user's
    there."""
    return {"PYTHONPATH": os.pathsep.join(filter(None, (environ.get("PYTHONPATH"), str(ALONE))))}
