"""JSON files that are written whole or not at all."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainer.job.errors import UserError


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty if there is none."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def write_json(path: Path, value: Mapping[str, object]) -> None:
    """Whole or not at all.

    Raises:
        UserError: the disk is full or not writable.
    """
    temporary = path.with_name(f".tmp-{path.name}-{os.getpid()}")
    try:
        temporary.write_text(json.dumps(value, indent=2) + "\n")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise UserError(f"model_dir: {path}: cannot be written: {error.strerror}") from None
