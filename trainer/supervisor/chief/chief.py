"""The chief's supervisor: answers all tasks and leads the rendezvous, in addition to running its own task."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

from aiohttp import ClientSession

from trainer.job.errors import Exit, TrainerError
from trainer.model_dir import checkpoint, compatibility
from trainer.model_dir.stacks import Stacks
from trainer.protocol.facts import Began, Checkpoint
from trainer.protocol.log_lines import LOG_SECONDS, STOPPED_PREFIX, log_error, log_line
from trainer.protocol.reports import NOBODY_LOOKS, Reply, Report
from trainer.protocol.status import JobStatus
from trainer.supervisor import preflight
from trainer.supervisor.chief import earlier_run, lease_keeper
from trainer.supervisor.chief.dialler import Dialler
from trainer.supervisor.chief.end_report import EndReport
from trainer.supervisor.chief.ending import JobEnd
from trainer.supervisor.chief.journal import Journal
from trainer.supervisor.chief.reporter import Reporter
from trainer.supervisor.chief.saved_state import Record
from trainer.supervisor.control_port import peers
from trainer.supervisor.control_port.long_poll import Held
from trainer.supervisor.rendezvous.printed_steps import PrintedSteps
from trainer.supervisor.rendezvous.state_machine import Rendezvous
from trainer.supervisor.task import figures, task_report
from trainer.supervisor.task.job_logs import JobLogs
from trainer.supervisor.views.live_page import LivePage
from trainer.supervisor.views.reported import Reported

if TYPE_CHECKING:
    from trainer.supervisor.children.child import Child
    from trainer.supervisor.task.agent import Agent

BEAT_SECONDS = 0.5
STACKS_POLL_SECONDS = 0.05


class Chief:
    """Answers the reports of all tasks, and leads the job until it is over."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._spec, self._task = agent.spec, agent.task
        self._directory = self._spec.directory
        self._clock = agent.clock
        self._asked_to_stop = 0
        self._printed = PrintedSteps()
        """The highest steps that the program has printed."""
        self._checkpoint = (0, 0), 0.0
        """Generation and step of the last checkpoint that was noted, and the seconds of saving until then."""
        self._warnings: list[str] = []
        """Dangers to the job, for /status."""
        self.logs: JobLogs | None = None
        self._page: LivePage | None = None
        self._ready = asyncio.Event()
        """Set once it leads the job or knows how that has ended; before, an answer might be another end."""
        self._take_place(waits=True)

    def _take_place(self, *, waits: bool) -> None:
        """Takes the lease, and begins with what the chief before has kept."""
        self._record = Record(self._spec, self._clock, self._agent.incarnation, waits=waits)
        begun = self._clock()
        self._rendezvous = Rendezvous(
            self._spec,
            self._task,
            self._record.state.generation,
            begun,
            lambda: earlier_run.newest_step(self._spec) or 0,
            self._record.progress,
            self._advanced,
            self._record.chronicle,
        )
        self._rendezvous.term = self._record.lease.number
        self._end_report = EndReport(self._spec, self._task)
        self._job_end = JobEnd(self._agent, self._record, self._rendezvous, self._end_report)
        self._held = Held()
        self._announced = self._rendezvous.version
        self._journal = Journal(self._directory, self._record.lease.number, self._record.require_lease)
        self._announced_facts = self._journaled = 0
        self._reporter = Reporter(self._agent, self._record, self._rendezvous, self._warnings, [self._end_report])
        self._dialler = Dialler(self._spec.name, self._task, self._rendezvous, self._clock, self._announce)
        # Before any other task reports: the others are compared with the chief.
        self._rendezvous.report(task_report.make_report(self._agent), begun)

    def _advanced(self) -> bool | None:
        """Whether the files or the output of a program show progress since the last call; None if they never have."""
        wrote = self._record.wrote()
        if not self._spec.program:
            return wrote
        printed = self._printed.higher(self._agent.newest.printed if self._agent.newest else "")
        return (wrote or printed) if self._printed.vary or self._record.has_files else None

    def live_page(self) -> LivePage:
        """Makes the page of this job, which follows it from now on."""
        self.logs = JobLogs(self._task.name, self._agent.logs)
        self._page = LivePage(
            self._spec,
            self._task,
            self.logs,
            self.status,
            lambda: self._rendezvous.tasks.members,
            lambda: self._record.require_lease(),
        )
        return self._page

    async def run(self, session: ClientSession) -> Exit:
        """Runs until the job is over."""
        if self._record.waits:
            await lease_keeper.wait_for(self._record.predecessor, self._agent)
            if self._agent.leaving_since is not None:
                log_line(f"{STOPPED_PREFIX}the chief before this one still saves")
                return Exit.STOPPED
            self._take_place(waits=False)
        guard = asyncio.create_task(lease_keeper.keep(self._record, self._agent, self._lose))
        try:
            await self._begin(session)
            return await self._finish()
        finally:
            guard.cancel()

    async def _begin(self, session: ClientSession) -> None:
        """Leads the job, unless its end is known already."""
        try:
            try:
                leads = await self._prepare()
            finally:
                self._ready.set()
            if leads:
                await self._lead(session)
        except TrainerError as error:
            self._fail(error)

    async def _prepare(self) -> bool:
        """Looks at what is in model_dir; returns whether the job is to be led.

        Raises:
            TrainerError: it cannot be.
        """
        # In a thread: it takes seconds for a large dataset.
        digest = self._agent.workload_digest
        key = await asyncio.to_thread(compatibility.key, self._spec, self._task.counts, digest)
        self._job_end.key = key
        if (end := self._record.repeats) is not None:
            self._end_report.told = True
            self._rendezvous.end(Exit(end.code), end.message)
            return False
        if found := await asyncio.to_thread(earlier_run.result_of_this_job, self._spec, key):
            self._end_report.told = True
            self._rendezvous.end(Exit.OK, "", found.steps)
            return False
        if self._record.refusal is not None:
            raise self._record.refusal
        if self._record.continues and self._spec.resume == "none":
            self._rendezvous.end(Exit.GAVE_UP, "the chief was lost, and the program does not resume (resume: none)")
            return False
        self._job_end.warnings = earlier_run.check_checkpoint(self._spec, key)
        if self._record.continues:
            self._rendezvous.gathering.hangs = self._record.state.hangs
            self._rendezvous.take_over(self._clock(), handed_over=self._record.handed_over)
        self._record.accept(preflight.control_address(self._task)[1], self._agent.incarnation)
        self._follow_with_observers()
        return True

    def _fail(self, error: TrainerError) -> None:
        if error.code is Exit.REPLACED:
            self._lose()
        else:
            self._rendezvous.end(error.code, str(error))

    def _lose(self) -> None:
        lease_keeper.give_up_place(self._rendezvous, self._agent)

    async def answer(self, report: Report, known: int) -> Reply:
        """Answers a supervisor's report, its heartbeat; holds it while there is nothing new for it."""
        if self.logs and self._rendezvous.tasks.counts(report):
            self.logs.take(report)
        reply = await self._answer(report, known)
        after = self.logs.after(report.task, report.incarnation) if self.logs else NOBODY_LOOKS
        return reply if reply.lines_after == after else replace(reply, lines_after=after)

    async def _answer(self, report: Report, known: int) -> Reply:
        if report.task == self._task.name:
            return Reply("failed", 0, 0, self._rendezvous.version, Exit.MISMATCH, f"{report.task} is the chief itself")
        await self._ready.wait()
        self._rendezvous.stopping = self._agent.leaving_since is not None
        reply = self._rendezvous.report(report, self._clock())
        member = self._rendezvous.tasks.members.get(report.task)
        if member is not None and member.problem is not None:
            self._agent.changed.set()  # its address is tried now, not at the next beat
        self._announce()
        if self._rendezvous.code is Exit.REPLACED and not reply.refused:
            reply = self._rendezvous.reply(report.task)
        if not self._rendezvous.tasks.counts(report):
            if reply.phase == "forming":  # it waits for the one before it
                await asyncio.sleep(peers.HOLD_SECONDS)
            return reply
        if reply.version == known:
            tasks = len(self._rendezvous.tasks.required)
            await self._held.until_news(peers.hold_seconds(tasks, self._spec.deadlines.task_lost))
            if not self._rendezvous.tasks.counts(report):
                return self._rendezvous.report(report, self._clock())
            reply = self._rendezvous.reply(report.task)
        if reply.phase in ("done", "failed") and report.task in self._rendezvous.tasks.members:
            self._rendezvous.tasks.members[report.task].notified = True
        return reply

    def refuse(self, peer: str, task: str, why: str) -> None:
        """Handles a request to /report that is not a report of this job."""
        self._dialler.refuse(peer, task, why)

    def warn(self, text: str) -> None:
        """Logs a danger to the job, and shows it in its status."""
        self._warnings.append(text)
        log_line(f"warning: {text}")

    def status(self) -> JobStatus:
        """The whole job's view, for /status."""
        return replace(self._reporter.status(self._clock()), refused_reports=dict(self._dialler.refusals))

    def _follow_with_observers(self) -> None:
        """The job begins: from now on its observers get a snapshot at each beat."""
        if not self._record.continues:
            self._rendezvous.note(Began(self._record.run))
        if self._spec.program:
            self._reporter.observers.append(Reported(self._directory, self._record.require_lease))
        if self._page:
            self._reporter.observers.append(self._page)
            started, continues = self._record.state.started, not self._record.begins
            page = self._page.run(started, self._record.lease.number, continues=continues)
            self._showing = asyncio.create_task(page)

    async def stacks(self) -> Stacks:
        """Asks all tasks for their stacks; at most for a few seconds."""
        gathering = self._rendezvous.gathering
        self._rendezvous.ask_for_stacks(self._clock())
        self._announce()
        while gathering.number and not self._rendezvous.over:
            await asyncio.sleep(STACKS_POLL_SECONDS)
        return gathering.last

    async def _lead(self, session: ClientSession) -> None:
        agent, rendezvous, logged = self._agent, self._rendezvous, self._clock()
        rendezvous.begin(logged)
        dialled = logged
        while not rendezvous.over:
            now = self._clock()
            if rendezvous.phase == "forming" or now - dialled >= BEAT_SECONDS:  # not at each step of the child
                self._dialler.dial(session)
                dialled = now
            rendezvous.stopping = agent.leaving_since is not None
            rendezvous.report(task_report.make_report(agent), now, self._reporter.workers())
            rendezvous.tick(now)
            self._announce()
            reply = rendezvous.reply(self._task.name)
            if reply.phase in ("done", "failed") or rendezvous.code is Exit.REPLACED:
                return
            agent.stacks.ask(reply.stacks, agent.running)
            await agent.act(reply)
            await self._look_at_child(agent.running)
            self._reporter.compare_tasks(now)
            if self._reporter.stands_still():
                rendezvous.ask_for_stacks(now, "standstill")
            self._reporter.observe(now)
            self._record.save_progress(rendezvous.generation, now)
            self._record.save_hangs(rendezvous.gathering.hangs, rendezvous.generation)
            if rendezvous.phase != "forming":
                logged = now
            elif now - logged > LOG_SECONDS:
                log_line(f"waiting: {rendezvous.tasks.summary(now)}")
                logged = now
            if (limit := self._spec.deadlines.job) and self._record.seconds_of_this_start() > limit:
                where = f"; {stalled}" if (stalled := self._reporter.stalled) else ""
                rendezvous.end(Exit.OVERDUE, f"the job has taken longer than {limit:g} s (deadlines.job){where}")
            if agent.leaving_since is not None and self._may_leave():
                if self._record.hands_over:
                    rendezvous.generation_over(self._clock())
                    self._announce()
                    return
                self._job_end.stop()
            self._announce()
            await agent.wait_for_change(BEAT_SECONDS)

    async def _look_at_child(self, child: Child | None) -> None:
        """Handles changes of the chief's own child: a first step, the end, or a requested stop."""
        if child is None:
            return
        child.count_out(self._rendezvous.tasks.silent())
        await self._look_at_checkpoint(child)
        if self._rendezvous.over:  # for a report that came while the volume was slow
            return
        if self._record.state.seconds_to_first_step is None and (at := self._agent.first_step_at) is not None:
            phased = figures.phases(self._record.started, child.times) if self._spec.runs.takes_orders else None
            self._record.made_first_step(phased or {"first_step": round(at - self._record.started, 3)})
        if (rate := self._reporter.rate) is not None:
            self._record.state.examples_per_second = rate
        if child.result is not None and not self._rendezvous.tasks.unfinished(self._rendezvous.generation):
            await self._job_end.succeed(child, child.result)
        elif not child.alive and child.status.stopped_well:
            self._rendezvous.generation_over(self._clock())
        elif child.alive and self._asked_to_stop != child.generation and self._a_ps_is_leaving():
            child.stop()
            self._asked_to_stop = child.generation

    async def _look_at_checkpoint(self, child: Child) -> None:
        """Notes a checkpoint that the chief's child has completed."""
        step, saving = child.status.last_checkpoint, child.status.seconds_saving or 0.0
        before, paused = self._checkpoint
        if step is None or (child.generation, step) == before:
            return
        self._checkpoint = (child.generation, step), saving
        # In a thread: the volume may be slow.
        written = await asyncio.to_thread(checkpoint.written, self._directory, step)
        pause = saving - paused if before[0] == child.generation else saving
        self._rendezvous.note(Checkpoint(step, written[1] if written else None, round(max(0.0, pause), 3)))

    def _a_ps_is_leaving(self) -> bool:
        members = self._rendezvous.tasks.members.values() if self._spec.runs.takes_orders else ()
        return any(m.report.leaving and m.report.task.startswith("ps:") for m in members)

    def _may_leave(self) -> bool:
        child = self._agent.running
        if child is None or not child.alive or self._agent.stop_deadline_passed:
            return True
        # Its checkpoint is on disk. TensorFlow's destructors may still wait for seconds, as for an iterator's threads.
        return child.status.stopped_well

    async def _finish(self) -> Exit:
        if self._rendezvous.over and self._rendezvous.code not in (Exit.OK, Exit.REPLACED):
            self._reporter.keep_standstill()
            self._record.state.hangs = self._rendezvous.gathering.hangs
        self._announce()
        self._reporter.observe(self._clock())
        code = await (self._job_end.finish() if self._rendezvous.over else self._job_end.hand_over())
        if self._record.accepted:
            self._journal.write([])  # what has waited for room on the disk
        return code

    def _announce(self) -> None:
        """Answers all held reports, and logs new events."""
        rendezvous = self._rendezvous
        for entry in rendezvous.chronicle.since(self._announced_facts):
            if entry.fact.news:
                log_line(entry.text)
        self._announced_facts = rendezvous.chronicle.noted
        if self._record.accepted:  # a refused one must keep the journal of the job that may be resumed
            self._journal.write(rendezvous.chronicle.since(self._journaled))
            self._journaled = rendezvous.chronicle.noted
        if rendezvous.version != self._announced:
            self._look_at_lease()
            if rendezvous.generation != self._record.state.generation:
                try:
                    self._record.save(rendezvous.generation)
                except TrainerError as error:  # for example a full disk; the caller may handle another task's report
                    self._fail(error)
            if rendezvous.over and rendezvous.code is not Exit.OK:  # before any task that it answers repeats it
                (log_line if rendezvous.code is Exit.STOPPED else log_error)(rendezvous.message)
            self._announced = rendezvous.version
            self._held.release()
            self._agent.changed.set()

    def _look_at_lease(self) -> None:
        """Before an end is announced: without the lease it is not this chief's to announce."""
        if self._rendezvous.over and self._rendezvous.code is not Exit.REPLACED:
            try:
                self._record.require_lease()
            except TrainerError:
                self._lose()
