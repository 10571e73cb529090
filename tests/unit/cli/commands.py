"""The command, and a spec for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.cli import main as cli

ROOT = Path(__file__).parents[3]
SPEC = """
name: j
strategy: multi_worker_mirrored
tasks: {chief: {cpu: 1.5, memory: 2Gi}, worker: {replicas: 3}, evaluator: 1}
train: {global_batch_size: 64, learning_rate: 1.0e-3, learning_rate_scaling: sqrt}
"""


def trainer(*words: str, code: str | None = None, **more: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, or code that calls it."""
    command = [sys.executable, *(["-c", code] if code else ["-m", "trainer"]), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, **more)


def usage_error(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert isinstance(caught.value.code, int)
    return caught.value.code
