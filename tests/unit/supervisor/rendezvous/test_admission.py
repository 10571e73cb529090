"""Tasks that differ from their chief, in a rendezvous."""

import re
from typing import Any

import pytest

from tests.unit.supervisor.jobs import LOST, START, VERSIONS, Job, failed
from trainer.job.errors import Exit
from trainer.supervisor.rendezvous.admission import UNSTARTED
from trainer.supervisor.rendezvous.membership import DIFFERS_SECONDS

STRANGERS: list[tuple[str, dict[str, Any], str]] = [
    (
        "worker:1",
        {"cluster": "0ther"},
        r"worker:1 has a different cluster than the chief; all tasks need the same 'cluster' in TF_CONFIG",
    ),
    ("worker:1", {"spec": "0ther"}, r"worker:1 has a different job spec than the chief; give all"),
    (
        "worker:1",
        {"workload": "0ther"},
        r"worker:1 has a different workload file \(mnist\) than the chief; give all",
    ),
    ("worker:1", {"versions": {**VERSIONS, "trainer": "9.9"}}, r"has trainer 9\.9, the chief 0\.1\.0"),
    ("worker:1", {"versions": {**VERSIONS, "tensorflow": "2.20.0"}}, r"has tensorflow 2\.20\.0, the chief 2\.21\.0"),
    ("worker:1", {"versions": {}}, r"worker:1 has tensorflow None, the chief 2\.21\.0; use one image"),
    ("worker:9", {}, r"worker:9 is not in the chief's cluster \(worker:0, worker:1, worker:2\); compare"),
]


@pytest.mark.parametrize(("name", "changes", "line"), STRANGERS)
def test_a_mismatched_task_is_refused_at_once_with_one_line(name: str, changes: dict[str, Any], line: str) -> None:
    job = Job()
    job.arrive("worker:0")
    reply = job.report(name, **changes)
    assert (reply.phase, reply.code) == ("failed", Exit.MISMATCH)
    assert re.search(line, reply.message)
    assert reply.message.isprintable()
    assert job.core.phase == "forming", "the job waits for the right one"


@pytest.mark.parametrize("changes", [changes for name, changes, _ in STRANGERS if name == "worker:1"])
def test_a_mismatched_task_ends_the_job_long_before_the_deadline(changes: dict[str, Any]) -> None:
    job = Job(deadlines={"start": 1800})
    job.arrive("worker:0", "worker:2")
    job.wait(500)
    difference = job.report("worker:1", **changes).message
    job.wait(DIFFERS_SECONDS)
    assert job.core.phase == "forming", "a right one may replace it"
    job.wait(1)
    assert job.outcome == ("failed", Exit.MISMATCH)
    assert job.core.message == f"the cluster cannot form: worker:1: {difference}"


UNABLE: dict[str, Any] = {"workload": UNSTARTED, "versions": {}, "loss": failed(Exit.USER, "no such command")}


def test_a_task_that_cannot_start_ends_the_job_though_it_knows_no_digest_and_no_version() -> None:
    job = Job()
    job.arrive("worker:0", "worker:2")
    assert job.report("worker:1", **UNABLE).code == Exit.USER
    assert (job.outcome, job.core.message) == (("failed", Exit.USER), "worker:1: no such command")


def test_a_task_of_another_job_that_cannot_start_does_not_end_this_one() -> None:
    job = Job()
    job.arrive("worker:0", "worker:2")
    assert job.report("worker:1", spec="0ther", **UNABLE).code == Exit.MISMATCH
    assert job.core.phase == "forming"


def test_a_task_of_an_earlier_job_that_is_on_its_way_out_does_not_end_this_one() -> None:
    job = Job()
    job.arrive("worker:0", "worker:2")
    assert job.report("worker:1", spec="0ther", leaving=True).code == Exit.MISMATCH
    job.wait(START + 1, "worker:1")
    assert job.outcome == ("failed", Exit.MISSING)


def test_a_mismatched_task_that_is_not_required_has_no_effect() -> None:
    job = Job()
    job.arrive("worker:0")
    job.report("worker:9")
    job.arrive("worker:2")
    job.wait(START + 1, "worker:1")
    assert job.outcome == ("failed", Exit.MISSING)
    other = Job()
    other.arrive("worker:0")
    other.report("worker:9")
    other.run()


def test_a_mismatched_task_that_returns_with_matching_values_is_admitted() -> None:
    job = Job()
    job.arrive("worker:0")
    job.report("worker:1", spec="0ther")
    job.report("worker:1", spec="spec", incarnation="second")
    job.wait(START + 1, "worker:1", "worker:2")
    assert job.outcome == ("failed", Exit.MISSING)
    assert "worker:1: silent for 101 s" in job.core.message


def test_a_task_replaced_by_a_mismatched_one_is_reported_missing_with_the_difference() -> None:
    job = Job()
    job.run()
    job.report("worker:1", incarnation="second", generation=0, versions={"tensorflow": "2.20.0"})
    assert job.outcome == ("running", Exit.OK)
    job.wait(LOST + 1, "worker:1")
    assert job.outcome == ("forming", Exit.OK)
    job.wait(DIFFERS_SECONDS + 1, "worker:1")
    assert job.outcome == ("failed", Exit.MISMATCH)
    assert "worker:1 has tensorflow 2.20.0, the chief 2.21.0" in job.core.message
