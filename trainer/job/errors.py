"""Exit codes and the one exception that carries them.

TrainerError
├── UserError         exit 2: an error in spec, TF_CONFIG, workload, data or model_dir, for the user to fix
├── UnreachableError  exit 11: a peer cannot be reached, which is perhaps lost
└── (any other code of Exit, passed to the constructor)
"""

from __future__ import annotations

import enum
from typing import Literal


class Exit(enum.IntEnum):
    """Exit codes of a task. Only a `retryable` code can change if the task is restarted."""

    OK = 0
    BUG = 1
    USER = 2
    MISSING = 10
    MISMATCH = 11
    DEVICES = 12
    DIVERGED = 13
    GAVE_UP = 14
    CHIEF_LOST = 15
    TARGET = 16
    EVALUATION = 17
    PROGRAM = 18
    OVERDUE = 19
    REPLACED = 20
    STOPPED = 143

    @property
    def meaning(self) -> str:
        return _MEANINGS[self]

    @property
    def retryable(self) -> bool:
        return self in (Exit.CHIEF_LOST, Exit.REPLACED, Exit.STOPPED)


Outcome = Literal["done", "failed", "stopped"]


def outcome(code: int) -> Outcome:
    """How a job with this exit code has ended, in a word."""
    return "done" if code == Exit.OK else "stopped" if code == Exit.STOPPED else "failed"


_MEANINGS = {
    Exit.OK: "the job succeeded, or is already complete",
    Exit.BUG: "unexpected error: a defect in trainer; the traceback is in the task's log",
    Exit.USER: "spec, TF_CONFIG, workload file, data, model_dir or port: the message names value, rule and fix",
    Exit.MISSING: "a task was still missing after deadlines.start, or after deadlines.rejoin",
    Exit.MISMATCH: (
        "a task differs from its chief (cluster, spec, workload file, secret or versions), or does not answer at its "
        "address in TF_CONFIG, or at its port for gradients"
    ),
    Exit.DEVICES: "a task lacks a device: fewer GPUs than the spec asks for, no TPU, an unknown device name",
    Exit.DIVERGED: "the loss became NaN or infinite, or float16 skips every batch; the message names the step",
    Exit.GAVE_UP: (
        "the cluster was re-formed, or a ps-worker restarted, max_restarts times in a row without a new step, and "
        "failed again"
    ),
    Exit.CHIEF_LOST: (
        "no reply from the chief for deadlines.chief_lost, or none since the start of the task for deadlines.start"
    ),
    Exit.TARGET: (
        "Docker or Kubernetes is missing, too old, refuses, or lacks what the job needs: image, GPUs; of trainer "
        "track: the server did not take all that there was of the job"
    ),
    Exit.EVALUATION: (
        "the last checkpoint was not scored: the evaluator failed (the result of the training is valid), or the "
        "chief's evaluation exceeded deadlines.evaluation"
    ),
    Exit.PROGRAM: (
        "the program of a task ended with an exit code from 1 to 127 by itself; the message names the task and the "
        "last error that it wrote"
    ),
    Exit.OVERDUE: "the job took longer than deadlines.job",
    Exit.REPLACED: "another process took this task's place while this one could not be reached",
    Exit.STOPPED: "stopped by SIGTERM or Ctrl-C; the same command resumes from the newest checkpoint, if there is one",
}


class TrainerError(Exception):
    """An error described in one line: the value, the rule and the fix."""

    def __init__(self, message: str, code: Exit = Exit.BUG) -> None:
        super().__init__(message)
        self.code = code


class UserError(TrainerError):
    """One or more problems that only the user can fix, one per line."""

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems), Exit.USER)
        self.problems = problems


class UnreachableError(TrainerError):
    """A peer does not answer, because it is lost or because something blocks its port."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Exit.MISMATCH)
