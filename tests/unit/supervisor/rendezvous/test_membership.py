"""Which tasks are silent, beside a count that looks through all of them at each beat."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.unit.supervisor.jobs import LOST, Job
from trainer.job.errors import Exit


@pytest.mark.parametrize("seed", range(20))
def test_each_silence_is_noticed_at_the_first_beat_after_its_deadline(seed: int) -> None:
    dice, job = random.Random(seed), Job({"worker": 6, "ps": 1})
    job.run()
    tasks, seen, silent = job.core.tasks, dict.fromkeys(job.core.tasks.required, 0.0), set[str]()
    reports_again = dict.fromkeys(seen, 0.0)
    noticed = 0
    for beat in range(1, 400):
        now = beat * 0.5
        for name in seen:
            if now >= reports_again[name]:
                reports_again[name] = now + dice.choice([1.0, 3.0, LOST, LOST + 0.5, 3 * LOST])
                job.reports[name] = replace(job.reports[name], number=beat)
                tasks.heard(tasks.members[name], job.reports[name], now)
                seen[name] = now
                silent.discard(name)
        due = [name for name in tasks.required if now - seen[name] > LOST and name not in silent]
        assert tasks.newly_silent(now) == due
        silent |= set(due)
        assert tasks.silent() == [name for name in tasks.required if name in silent]
        noticed += len(due)
    assert noticed > 10


@pytest.mark.parametrize(("workers", "alive"), [(2, 3.0), (1498, 4.5)])
def test_one_that_started_earlier_has_the_place_of_one_that_is_lost(workers: int, alive: float) -> None:
    """It waits while that one is late, and has lost its place once that one reports."""
    job = Job({"worker": workers, "ps": 1})
    job.arrive("worker:1")
    earlier = replace(job.reports["worker:1"], incarnation="another", started=-10.0)
    lost = job.core.spec.deadlines.task_lost
    assert [job.core.tasks.place(earlier, now) for now in (alive + 0.1, lost - 0.1)] == ["taken", "taken"]
    assert job.core.tasks.place(earlier, lost + 0.1) == "free"
    assert job.core.tasks.place(earlier, alive - 0.1) == "lost"


def test_the_process_that_comes_later_has_the_place_though_its_machine_s_clock_is_a_second_late() -> None:
    job = Job()
    job.report("worker:1", started=100.0)
    replacement = replace(job.reports["worker:1"], incarnation="another", started=99.0)
    assert job.core.report(replacement, job.now).code == Exit.OK
    assert job.core.tasks.counts(replacement)
    assert job.core.report(job.reports["worker:1"], job.now).code == Exit.REPLACED


@pytest.mark.parametrize("tasks", [{"worker": 3}, {"chief": 1, "worker": 1}])
def test_each_task_hears_the_port_of_the_next_one_in_the_ring(tasks: dict[str, int]) -> None:
    job = Job(tasks)
    names = job.core.tasks.required
    for port, name in enumerate(names, 4000):
        assert job.report(name, gradients=port).following == 0, "there is no generation yet"
        job.reach(name)
    assert [job.report(name).following for name in names] == [*range(4001, 4000 + len(names)), 4000]
    job.report(names[-1], incarnation="another", gradients=4999)
    job.reach(names[-1])
    job.stop_children()
    assert job.core.generation == 2
    assert job.report(names[-2]).following == 4999


def test_a_server_and_an_evaluator_have_no_place_in_a_ring() -> None:
    job = Job({"worker": 2, "ps": 1, "evaluator": 1})
    job.run()
    assert {job.report(name).following for name in (*job.core.tasks.required, "evaluator:0")} == {0}
