"""Which of several ends of programs is the first cause."""

from dataclasses import replace

from tests.unit.supervisor.jobs import KILLED
from trainer.job.errors import Exit
from trainer.protocol.facts import Cause, Loss
from trainer.protocol.reports import Report
from trainer.supervisor.rendezvous.first_cause import CULPRIT_SECONDS, SETTLE_SECONDS, Deaths

FAILED = Loss(Cause.PROGRAM_ENDED, error="exited with code 1", code=int(Exit.PROGRAM), status=1)
ALL = ("worker:0", "worker:1", "worker:2")


def killed(task: str) -> Report:
    return Report(task, "i", "c", "s", "w", {}, ended_early=1, loss=KILLED)


def failed(task: str, *, blames_peer: bool = False) -> Report:
    return Report(task, "i", "c", "s", "w", {}, ended_early=1, loss=replace(FAILED, blames_peer=blames_peer))


def cause(deaths: Deaths, heard: float, now: float) -> str | None:
    found = deaths.cause(dict.fromkeys(ALL, heard), now)
    return found.task if found else None


def test_a_signal_is_a_cause_at_once() -> None:
    deaths = Deaths()
    assert cause(deaths, 0, 0) is None
    deaths.add(failed("worker:0", blames_peer=True), 1.0)
    deaths.add(failed("worker:1"), 1.1)
    deaths.add(killed("worker:2"), 1.2)
    assert cause(deaths, 0, 1.2) == "worker:2"


def test_an_error_is_judged_once_all_others_have_reported_after_it() -> None:
    deaths = Deaths()
    deaths.add(failed("worker:0"), 1.0)
    assert cause(deaths, 1.5, 1.0 + SETTLE_SECONDS / 2) is None
    assert cause(deaths, 0.9, 100.0) is None, "a task that has been silent since then may be the cause"
    assert cause(deaths, 1.5, 1.0 + SETTLE_SECONDS) == "worker:0"


def test_an_error_of_a_lost_peer_yields_to_any_other() -> None:
    deaths = Deaths()
    deaths.add(failed("worker:0", blames_peer=True), 1.0)
    deaths.add(failed("worker:1", blames_peer=True), 1.1)
    assert cause(deaths, 2.0, 3.0) is None, "worker:2 may be about to end with the error that is the cause"
    assert cause(deaths, 2.0, 1.0 + CULPRIT_SECONDS) == "worker:0"
    deaths.add(failed("worker:2", blames_peer=True), 2.5)
    assert cause(deaths, 2.0, 3.0) == "worker:0", "no other program runs"
    deaths.clear()
    deaths.add(failed("worker:0", blames_peer=True), 1.0)
    deaths.add(failed("worker:2"), 6.0)
    assert cause(deaths, 6.5, 6.5) == "worker:2"


def test_the_first_report_of_a_task_counts_and_a_generation_starts_afresh() -> None:
    deaths = Deaths()
    deaths.add(failed("worker:0"), 1.0)
    deaths.add(failed("worker:1"), 1.1)
    deaths.add(failed("worker:0"), 5.0)
    assert cause(deaths, 9.0, 9.0) == "worker:0"
    deaths.clear()
    assert cause(deaths, 9.0, 9.0) is None
