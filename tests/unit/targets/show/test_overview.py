"""The status of a job as text."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.cli.fake import STATUS
from trainer.protocol.status import JobStatus
from trainer.targets.base import JobOverview
from trainer.targets.show.overview import describe


def rows(status: JobStatus) -> dict[str, str]:
    lines = describe(JobOverview("j", "running", job=status)).splitlines()
    return {name: text.strip() for name, _, text in (line.partition("  ") for line in lines)}


def test_the_time_left_and_what_a_job_stands_still_for_are_shown() -> None:
    stalled = "no new step for 50 s: 2 tasks wait for the batch of step 94 (slow.py:15)"
    shown = rows(replace(STATUS, seconds_left=100.0, stalled=stalled))
    assert (shown["left"], shown["stalled"]) == ("0:01:40", stalled)


def test_after_the_last_step_what_is_left_takes_the_place_of_the_time() -> None:
    ending = "evaluating on the test data, batch 3 of 10; then saving the exports"
    shown = rows(replace(STATUS, seconds_left=0.0, ending=ending))
    assert shown["now"] == ending
    assert "left" not in shown
