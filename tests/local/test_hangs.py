"""A task that hangs is named with its line before its job is ended, whatever it hangs in."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.hangs import HANGS, verdicts
from tests.harness import Job
from trainer.job.errors import Exit

SLOW = [name if name in ("pipe", "silent_ps") else pytest.param(name, marks=pytest.mark.slow) for name in HANGS]


@pytest.mark.parametrize("name", SLOW)
def test_a_task_that_hangs_is_named_with_its_line(tmp_path: Path, name: str) -> None:
    hang = HANGS[name]
    with Job(tmp_path, hang.write(tmp_path)) as job:
        if hang.stops:
            job.until_step(5)
            job.signal(hang.stops, number=signal.SIGSTOP)
        assert job.wait(240) == Exit.GAVE_UP, job.output
    assert any(hang.names in line for line in verdicts(job.output)), job.output
