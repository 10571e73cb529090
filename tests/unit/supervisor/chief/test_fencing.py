"""Two processes of one task: only one of them takes part."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.supervisor.jobs import LOST, Job
from trainer.job.errors import Exit

NAME = "worker:1"


def test_a_worker_that_was_replaced_does_not_come_back() -> None:
    job = Job()
    job.run()
    old = job.reports[NAME]
    job.wait(LOST + 1, NAME)
    new = job.restart(NAME)
    assert new.phase == "forming"
    refused = job.core.report(replace(old, number=old.number + 50), job.now)
    assert (refused.phase, refused.code) == ("failed", Exit.REPLACED)
    assert "another process has taken this one's place" in refused.message
    assert not job.core.over, "the job goes on"
    assert job.core.tasks.counts(job.reports[NAME])


def test_after_a_restart_of_the_chief_the_older_of_two_is_refused() -> None:
    job = Job()
    old = job.report(NAME, started=100.0)
    assert old.code == Exit.OK
    younger = replace(job.reports[NAME], incarnation="younger", started=200.0)
    older = replace(job.reports[NAME], incarnation="older", started=50.0)
    assert job.core.report(older, job.now).code == Exit.REPLACED
    assert job.core.report(younger, job.now).code == Exit.OK
    assert job.core.tasks.counts(younger)
    assert job.core.report(job.reports[NAME], job.now).code == Exit.REPLACED


def test_an_older_process_takes_the_place_of_one_that_is_gone() -> None:
    """Their nodes' clocks may differ."""
    job = Job()
    job.report(NAME, started=200.0)
    other = replace(job.reports[NAME], incarnation="other", started=100.0)
    job.wait(LOST + 1, NAME)
    assert job.core.report(other, job.now).code == Exit.OK
    assert job.core.tasks.counts(other)


def test_a_successor_waits_for_the_last_checkpoint_of_one_that_was_asked_to_stop() -> None:
    job = Job()
    job.run()
    job.report(NAME, leaving=True)
    generation = job.core.generation
    successor = replace(job.reports[NAME], incarnation="successor", generation=0, leaving=False)
    assert job.core.report(successor, job.now).phase == "forming"
    assert (job.core.phase, job.core.generation) == ("running", generation), "the others still save"
    job.report(NAME, generation=0)
    job.core.report(successor, job.now)
    assert job.core.tasks.counts(successor)


def test_a_task_that_comes_back_while_its_chief_is_stopping_has_no_part_in_the_generation_that_still_saves() -> None:
    job = Job()
    job.run()
    job.core.stopping = True
    new = replace(job.reports[NAME], incarnation="new", generation=0)
    assert job.core.report(new, job.now).phase == "forming"
    assert job.core.reply(NAME).phase == "forming"
    assert (job.core.phase, job.core.reply("worker:0").phase) == ("running", "running"), "the others still save"


def test_a_chief_that_was_replaced_does_not_end_the_job_for_its_tasks() -> None:
    job = Job()
    job.run()
    job.core.end(Exit.REPLACED, "another chief")
    reply = job.report(NAME)
    assert (reply.phase, reply.code) == ("forming", Exit.OK)
