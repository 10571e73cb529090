"""The process of a job that a Python program has started on this machine. Its output is only kept (output.py)."""

from __future__ import annotations

import contextlib
import signal

from trainer import host
from trainer.job.errors import Exit, TrainerError
from trainer.job.load import load_environment
from trainer.targets.local import output, run
from trainer.targets.local.output import Output


def main() -> int:
    """Runs the job of the environment to its end; returns its exit code."""
    host.end_with_parent(signal.SIGTERM)
    spec = load_environment()
    try:
        return run.run(spec, plain=True)
    except TrainerError as error:
        code, text = int(error.code), "; ".join(str(error).split("\n"))
    except Exception as error:
        code, text = int(Exit.BUG), f"internal error: {type(error).__name__}: {error}; please report it"
    with contextlib.closing(Output(spec.directory)) as kept:
        kept.line("local", output.ended(code, text))
    return code
