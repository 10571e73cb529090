"""Reads what a chief has answered, whose image may have another version of trainer."""

from __future__ import annotations

from trainer.job.errors import Exit, TrainerError
from trainer.model_dir import stacks
from trainer.model_dir.files import json_object
from trainer.model_dir.stacks import Stacks
from trainer.protocol import status
from trainer.protocol.status import JobStatus


def read_status(answer: str | bytes) -> tuple[JobStatus | None, str | None]:
    """Parses the chief's /status, as printed there, or returns why it cannot be read; neither while the chief
    does not answer, at its start and end. Its image may have another version of trainer."""
    if not json_object(answer):
        return None, None
    try:
        return status.read(answer), None
    except ValueError as error:
        return None, f"the chief's /status cannot be read: {error}; use the version of trainer in its image"


def read_stacks(answer: str | bytes, name: str) -> Stacks:
    """Parses the chief's /stacks.

    Raises:
        TrainerError: there is no answer, or none that can be read.
    """
    if not json_object(answer):
        raise TrainerError(f"{name}: its chief does not answer: it starts, has ended or is suspended", Exit.TARGET)
    try:
        return stacks.read(answer)
    except ValueError as error:
        text = f"{name}: the chief's /stacks cannot be read: {error}; use the version of trainer in its image"
        raise TrainerError(text, Exit.TARGET) from None
