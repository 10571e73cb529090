"""The chief: how it handles reports, and the files that it writes."""

import asyncio
import contextlib
import errno
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.supervisor.ports import HOST, get, serving
from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit, UserError
from trainer.job.load import build
from trainer.model_dir import checkpoint, compatibility, layout
from trainer.model_dir import state as job_state
from trainer.model_dir.files import write_json
from trainer.page.lines import LogQuery
from trainer.protocol.child import ChildStatus, measured
from trainer.protocol.events import Failed
from trainer.protocol.facts import Cause, Checkpoint, Loss
from trainer.protocol.reports import NOBODY_LOOKS, Reply, Report
from trainer.protocol.status import End
from trainer.supervisor.chief import earlier_run
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.chief.last_replies import unnotified
from trainer.supervisor.children.child import Child
from trainer.supervisor.control_port import peers
from trainer.supervisor.task import task_report
from trainer.supervisor.task.agent import Agent
from trainer.supervisor.views import live_page
from trainer.supervisor.views.live_page import LivePage


def failure(code: int, text: str) -> Loss:
    """The error of a task that would repeat."""
    return Loss(Cause.ERROR, error=text, code=code)


def make_report(chief: Chief, name: str, **changes: Any) -> Report:
    """As another task of the same job would send it."""
    return replace(
        task_report.make_report(chief._agent), task=name, incarnation="another", status=ChildStatus(), **changes
    )


@pytest.mark.parametrize("stopped", [False, True])
def test_a_state_that_cannot_be_written_or_removed_is_no_traceback(chief: Chief, tmp_path: Path, stopped: bool) -> None:
    """As on a volume that is full, or read-only since an error."""
    (layout.make_own(tmp_path) / "state.json").mkdir()

    async def run() -> tuple[Reply, Exit]:
        rendezvous, chief._record.accepted = chief._rendezvous, True
        if stopped:
            rendezvous.end(Exit.STOPPED, "stopped by a signal")
        for number in (1, 2, 3):  # with the second the generation forms, the third hears of the end
            for name in rendezvous.tasks.required[1:]:
                reply = await chief.answer(make_report(chief, name, number=number), 0)
                rendezvous.tasks.members[name].problem = rendezvous.tasks.members["worker:0"].problem = None
        return reply, await chief._finish()

    reply, code = asyncio.run(asyncio.wait_for(run(), 30))
    assert reply.phase == "failed"
    assert code is reply.code
    if stopped:
        assert code is Exit.STOPPED
    else:
        assert (code, reply.message) == (
            Exit.USER, f"model_dir: {layout.state(tmp_path)}: cannot be written: Is a directory",
        )  # fmt: skip


@pytest.mark.parametrize("how", ["checkpoint", "result"])
def test_a_refused_rerun_leaves_the_state_for_the_next_resume(tmp_path: Path, how: str) -> None:
    spec = build({"name": "j", "strategy": "one_device", "model_dir": str(tmp_path)})
    kept = job_state.State(generation=3, started=1e9, step=40)
    job_state.save(str(tmp_path), kept)
    key = {"train.seed": 7}
    if how == "checkpoint":
        checkpoint.save(tmp_path, 40, {}, {"compatibility_key": key})
    else:
        write_json(layout.result(str(tmp_path)), {"status": "succeeded", "compatibility_key": key, "steps": 40})

    async def run() -> Exit:
        chief = Chief(Agent(spec, tasks_of(spec)[0], Path(os.devnull)))
        with contextlib.closing(chief._record.lock):
            async with peers.client() as session:
                return await chief.run(session)

    assert asyncio.run(asyncio.wait_for(run(), 30)) is Exit.USER
    assert job_state.load(str(tmp_path), 0.0) == kept


@pytest.mark.parametrize(
    ("steps", "ending"),
    [([], "; there is no checkpoint yet"), ([300, 700], "; the checkpoints up to step 700 are good"), (None, "")],
)
def test_the_chief_names_the_checkpoints_of_a_job_that_diverged(
    chief: Chief, tmp_path: Path, steps: list[int] | None, ending: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The other tasks may have no access to them."""
    for step in steps or []:
        checkpoint.save(tmp_path, step, {}, {})
    if steps is None:

        def fails() -> int:
            raise OSError(errno.EIO, "Input/output error")

        chief._rendezvous._resume = fails
    reply = asyncio.run(chief.answer(make_report(chief, "worker:1", loss=failure(13, "the loss is nan")), 0))
    assert reply.message == f"worker:1: the loss is nan{ending}"
    assert capsys.readouterr().err == f"trainer: {reply.message}\n"


def test_the_chief_reports_the_failure_before_it_answers(chief: Chief, capsys: pytest.CaptureFixture[str]) -> None:
    reply = asyncio.run(chief.answer(make_report(chief, "worker:1", loss=failure(2, "no file")), 0))
    assert reply.phase == "failed"
    assert capsys.readouterr().err == "trainer: worker:1: no file\n"
    chief._agent.leave()
    asyncio.run(asyncio.wait_for(chief._finish(), 30))
    assert capsys.readouterr().err == "", "once"


def test_a_chief_that_reads_its_data_for_longer_than_the_deadline_waits_from_then_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_slowly(*_: object) -> dict[str, object]:
        time.sleep(0.5)
        return {}

    monkeypatch.setattr(compatibility, "key", read_slowly)
    deadlines = {"start": 0.4}
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, "deadlines": deadlines,
                  "program": ["true"], "code": [], "model_dir": str(tmp_path)})  # fmt: skip
    chief = Chief(Agent(spec, tasks_of(spec)[0], Path(os.devnull)))
    begun = chief._clock()

    async def run() -> float:
        async with peers.client() as session:
            lead = asyncio.create_task(chief.run(session))
            while not chief._rendezvous.over:
                await asyncio.sleep(0.01)
            waited = chief._clock() - begun
            lead.cancel()
            return waited

    # Half a second, and the deadline.
    assert asyncio.run(asyncio.wait_for(run(), 30)) > 0.85
    assert chief._rendezvous.code in (Exit.MISSING, Exit.MISMATCH)  # of itself: nobody answers at its port
    chief._record.lock.close()


def bytes_read() -> int:
    """By this process so far (proc(5))."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("steps", [1000, 500])
def test_a_supervisor_never_reads_the_values_of_a_checkpoint(chief: Chief, tmp_path: Path, steps: int) -> None:
    """To verify 8 GB takes 40 s, in which it would not answer: that is the child's work."""
    folder = checkpoint.folder(tmp_path) / "step-00000700"
    folder.mkdir(parents=True)
    meta = {"format": 1, "step": 700, "sha256": "", "compatibility_key": {}, "variables": {}}
    (folder / "meta.json").write_text(json.dumps(meta))
    with (folder / "variables.npz").open("wb") as file:
        file.truncate(300 << 20)
    chief._spec = chief._spec.model_copy(update={"train": chief._spec.train.model_copy(update={"steps": steps})})
    before = bytes_read()
    with contextlib.nullcontext() if steps >= 700 else pytest.raises(UserError, match="at step 700"):
        earlier_run.check_checkpoint(chief._spec, {})
    chief.status()
    chief._job_end.stop()
    # No child has verified it: it may be damaged.
    assert chief._rendezvous.message == (
        "stopped by a signal; the newest checkpoint is that of step 700; the same command resumes"
    )
    assert bytes_read() - before < 1 << 20


def test_a_held_report_is_answered_at_the_news(chief: Chief, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without news it would be held for the 60 s that the client waits."""
    monkeypatch.setattr(peers, "HOLD_SECONDS", 60.0)
    came = asyncio.Queue[Report]()

    async def answer(report: Report, known: int) -> Reply:
        came.put_nowait(report)
        return await chief.answer(report, known)

    async def run() -> None:
        async with serving(answer) as (session, port):

            async def ask(name: str, known: int, **changes: Any) -> Reply:
                return await peers.send_report(session, (HOST, port), make_report(chief, name, **changes), known)

            first = await ask("worker:1", 0)
            assert first.phase == "forming"
            held = asyncio.create_task(ask("worker:1", first.version))
            for _ in range(2):
                await came.get()
            assert not held.done()
            assert (await ask("worker:2", first.version, loss=failure(2, "no file"))).phase == "failed"
            assert (await held).message == "worker:2: no file"

    asyncio.run(asyncio.wait_for(run(), 30))


def test_without_news_a_report_is_answered_in_the_end(chief: Chief, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "HOLD_SECONDS", 0.1)

    async def run() -> None:
        begun = time.monotonic()
        reply = await chief.answer(make_report(chief, "worker:1"), 1)
        assert (reply.phase, reply.version) == ("forming", 1)
        assert time.monotonic() - begun >= 0.09

    asyncio.run(run())


def test_a_report_in_the_chiefs_name_changes_nothing(chief: Chief) -> None:
    async def run() -> Reply:
        return await chief.answer(make_report(chief, "worker:0", loss=failure(2, "x")), 0)

    reply = asyncio.run(run())
    assert (reply.phase, reply.code, reply.message) == ("failed", Exit.MISMATCH, "worker:0 is the chief itself")
    assert chief.status().phase == "forming"


def test_a_task_that_comes_before_the_chief_looks_is_compared_with_it_all_the_same(chief: Chief) -> None:
    reply = asyncio.run(chief.answer(make_report(chief, "worker:1", workload="another"), 0))
    assert (reply.phase, reply.code) == ("failed", Exit.MISMATCH)


def test_no_failure_of_the_chiefs_own_child_is_a_success(chief: Chief) -> None:
    chief._agent._on_child(Child(chief._task, lambda *_: None), Failed(0, "all is well"))
    chief._rendezvous.report(task_report.make_report(chief._agent), 0)
    assert chief.status().end == End(Exit.BUG, "worker:0: all is well")


def test_figures_of_a_user_do_not_hide_ours(chief: Chief) -> None:
    status = ChildStatus(figures={"state": "done", "generation": 9, "phase": "done", "loss": 0.5})
    asyncio.run(chief.answer(replace(make_report(chief, "worker:1"), status=status), 0))
    row = json.loads(json.dumps(chief.status().document()))["tasks"]["worker:1"]
    assert (row["state"], row["generation"], row["figures"]) == ("waiting", 0, status.figures)


def test_the_chief_itself_takes_the_lines_of_logs_while_a_page_shows_them(
    chief: Chief, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_page, "FIRST_LINES_SECONDS", 0.0)

    def ask(number: int) -> Reply:
        lines = [(1.5, "a line")] if number > 1 else []
        return asyncio.run(chief.answer(make_report(chief, "worker:1", number=number, lines=lines, first_line=1), 0))

    page = chief.live_page()
    assert ask(1).lines_after == NOBODY_LOOKS
    assert json.loads(asyncio.run(page.logs(LogQuery())))["lines"] == []
    assert [ask(number).lines_after for number in (1, 2, 3)] == [0, 1, 1]
    found = json.loads(asyncio.run(page.logs(LogQuery())))["lines"]
    assert [(line["task"], line["text"]) for line in found] == [("worker:1", "a line")]


def test_without_a_page_a_heartbeat_is_answered_all_the_same(chief: Chief) -> None:
    report = make_report(chief, "worker:1", number=1, lines=[(1.5, "of an earlier question")], first_line=1)
    reply = asyncio.run(chief.answer(report, 0))
    assert (reply.phase, reply.lines_after) == ("forming", NOBODY_LOOKS)
    assert chief.logs is None


def test_a_page_that_fails_does_not_stand_in_the_way_of_a_heartbeat(
    chief: Chief, monkeypatch: pytest.MonkeyPatch
) -> None:
    chief._reporter.observers.append(chief.live_page())
    for name in [name for name in vars(LivePage) if not name.startswith("__")]:
        monkeypatch.delattr(LivePage, name)
    chief._reporter.observe(chief._clock())
    assert asyncio.run(chief.answer(make_report(chief, "worker:1", number=1), 0)).phase == "forming"


def test_a_task_whose_request_was_abandoned_has_not_been_notified_of_the_end(chief: Chief) -> None:
    async def run() -> list[str]:
        rendezvous = chief._rendezvous
        report = make_report(chief, "worker:1")
        async with serving(chief.answer) as (session, port):
            held = asyncio.create_task(peers.send_report(session, (HOST, port), report, rendezvous.version))
            while "worker:1" not in rendezvous.tasks.members:
                await asyncio.sleep(0.01)
            held.cancel()
            await asyncio.wait({held})
            await get(session, port, "/healthz")
            rendezvous.end(Exit.OK, "")
            chief._announce()
            await get(session, port, "/healthz")
            return unnotified(rendezvous, rendezvous.tasks.members["worker:1"].seen)

    assert "worker:1" in asyncio.run(asyncio.wait_for(run(), 30))


def test_a_danger_is_logged_and_shown(chief: Chief, capsys: pytest.CaptureFixture[str]) -> None:
    chief.warn("the job has no secret")
    assert "warning: the job has no secret" in capsys.readouterr().out.splitlines()
    assert chief.status().warnings == ["the job has no secret"]


def test_a_slow_task_is_shown_and_noted_until_the_cluster_forms_again(
    chief: Chief, capsys: pytest.CaptureFixture[str]
) -> None:
    rendezvous, names = chief._rendezvous, ["worker:0", "worker:1", "worker:2"]
    rendezvous.phase, rendezvous.generation = "running", 1
    for now in range(0, 31, 3):
        for name in names:
            waited = 2.0 * now / 3 if name == "worker:2" else 0.1 * now / 3
            parts = {"input": waited, "compute": 0.9 * now / 3, "exchange": 0.7 * now - waited, "wait": 0.0}
            totals: dict[str, object] = {
                "steps_made": now,
                **{f"seconds_{part}": seconds for part, seconds in parts.items()},
            }
            rendezvous.report(replace(make_report(chief, name, number=now, generation=1), status=measured(totals)), now)
        chief._reporter.compare_tasks(now)
    status, text = chief.status(), "worker:2 is slow: its steps wait 667 ms for data, the others' 33.3 ms"
    assert status.straggler is not None
    assert (status.straggler.task, status.straggler.cause) == ("worker:2", "input")
    assert status.straggler.text.startswith(text)
    assert [(event.text[: len(text)], event.kind, event.task) for event in status.events] == [
        (text, "slow", "worker:2")
    ]
    shares = json.loads(json.dumps(status.document()))["tasks"]["worker:2"]["shares"]
    assert shares["input"] == pytest.approx(2.0 / 3.0, abs=0.01)
    chief._announce()
    assert capsys.readouterr().out.count(text) == 1
    rendezvous.phase = "forming"
    chief._reporter.compare_tasks(33)
    status = chief.status()
    assert (status.straggler, status.tasks["worker:2"].shares, len(status.events)) == (None, None, 1)


def test_each_checkpoint_is_noted_once_with_its_size_and_the_pause_that_it_took(chief: Chief, tmp_path: Path) -> None:
    child, another = Child(chief._task, lambda *_: None), Child(chief._task, lambda *_: None)
    child.generation, another.generation = 1, 2
    for step in (5, 10):
        checkpoint.save(tmp_path, step, {}, {})

    async def look(each: Child, step: int, saving: float) -> None:
        each.status.last_checkpoint, each.status.seconds_saving = step, saving
        for _ in range(2):
            await chief._look_at_checkpoint(each)

    async def run() -> None:
        await look(child, 5, 0.25)
        await look(child, 10, 0.75)
        await look(another, 10, 0.125)  # the next generation has written it again

    asyncio.run(run())
    noted = [each.fact for each in chief._rendezvous.chronicle.since(0) if isinstance(each.fact, Checkpoint)]
    assert [(each.number, each.seconds) for each in noted] == [(5, 0.25), (10, 0.5), (10, 0.125)]
    assert all(each.bytes for each in noted)
