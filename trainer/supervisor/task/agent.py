"""A task's own state: starts, watches and replaces the task's children as the chief's replies order."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import socket
from pathlib import Path

from trainer import clocks, host, ids, sockets
from trainer.job import environment, program, workload_file
from trainer.job.cluster import Task
from trainer.job.data import variables
from trainer.job.derived import has_ring, is_server, restarts_alone
from trainer.job.errors import TrainerError, UserError
from trainer.job.names import task_name
from trainer.job.spec import JobSpec
from trainer.model_dir import lease
from trainer.protocol import events
from trainer.protocol.events import Event
from trainer.protocol.facts import Cause, Loss, failure_code, failure_of
from trainer.protocol.log_lines import log_line
from trainer.protocol.orders import Neighbours
from trainer.protocol.reports import Reply, Used
from trainer.protocol.types import Phase
from trainer.supervisor.children import child_environ
from trainer.supervisor.children.child import Child, Exited
from trainer.supervisor.children.program import Program
from trainer.supervisor.children.standby import Standby
from trainer.supervisor.task.clock import ListeningClock
from trainer.supervisor.task.own_stacks import OwnStacks
from trainer.supervisor.task.task_logs import TaskLogs
from trainer.workloads.digests import file_digests, require_unchanged

LAST_REPLY_SECONDS = 0.5
"""The shortest wait for a reply of a task that was asked to stop, also after deadlines.stop."""
BACKOFF_SECONDS = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)


class Agent:
    """State and children of one task. `follower.py` or, for the chief's task, `chief.py` controls it."""

    def __init__(
        self, spec: JobSpec, task: Task, log: Path, secret: bytes = b"", versions: dict[str, str] | None = None
    ) -> None:
        self.spec, self.task, self.log, self.secret = spec, task, log, secret
        self.incarnation = ids.new()
        self.reports = 0
        """The number of reports that were made so far."""
        self.began = clocks.wall() - host.process_age()
        self.versions = versions or host.versions()
        self.spec_digest = spec.digest()
        self._workload = file_digests(spec)
        self.workload_digest = workload_file.combined(self._workload) if self._workload else "none"
        self.copying = ""
        """What is copied, while the task makes its copies of the data: it runs no child until then."""
        self.places = variables(spec.data)
        """Where the data are, by variable."""
        self.running: Child | None = None
        self.newest: Child | None = None
        """The child that ran last, also after its end."""
        self.standby = Standby(spec, task, log)
        self.changed = asyncio.Event()
        self.leaving_since: float | None = None
        self.leaves = asyncio.Event()
        """Set once it was asked to stop."""
        self.ended_early = 0
        self.loss: Loss | None = None
        """Why the running child has ended, or the task cannot go on."""
        self.restarts, self._retry_at = 0, 0.0
        self.restarted_for: Loss | None = None
        """The loss after which the child was last restarted alone."""
        self.stillborn = 0
        """Consecutive children of an evaluator that ended without a score, or could not be started."""
        self.not_started = ""
        """Why an evaluator's program could not be started the last time."""
        self.first_step_at: float | None = None
        self.phase: Phase = "forming"
        self.importable: dict[str, str] = {}
        """PYTHONPATH, with which a program can import trainer where it could not."""
        self.clock = ListeningClock()
        folder = program.folder(spec) if spec.program else Path.cwd()
        self.stacks = OwnStacks(folder, lambda: self.clock(), self.changed.set)
        self.logs = TaskLogs(spec, log, sum(task.counts.values()))
        self.used: Used | None = None
        self.listener: socket.socket | None = None
        """With which its children listen for gradients, at this port."""
        self.gradients = 0
        self._following, self._term = 0, 0

    def report_copying(self, text: str) -> None:
        """Reports how far the task's copies are; empty once they are complete."""
        self.copying = text
        self.changed.set()

    def fail(self, error: TrainerError) -> None:
        """Reports a failure of the task itself."""
        self.loss = failure_of(error)
        self.changed.set()

    async def act(self, reply: Reply) -> None:
        """Executes the chief's reply: kills, starts or keeps the child."""
        self.phase, self._following, self._term = reply.phase, reply.following, reply.term
        if self.copying:
            return
        child = self.running
        if self.task.type == "evaluator" and not self.spec.runs.checkpoints and (child or self.not_started):
            # It has no part in generations: it reads what the others write.
            if self.has_failed and reply.phase == "running" and self.leaving_since is None:
                await self.go_again(reply.generation, 0)
        elif reply.phase == "forming" and child is not None:
            if child.alive and not self._stopping_well(child):
                await self._let_go(child)
            if not child.alive:
                self.running = None
        elif reply.phase == "running" and self.leaving_since is None:
            # A task that restarts alone comes back to a job that has gone on.
            step = max(reply.resume_step, reply.step if self.restarts_alone else 0)
            if child is not None and child.alive and child.generation != reply.generation and self.spec.program:
                child.let_go()  # the next one, which needs its ports, begins once it has ended
            elif child is None or child.generation != reply.generation:
                await self.go(reply.generation, step)
            elif not child.alive and self.restarts_alone and child.result is None and not child.failed:
                await self.go_again(reply.generation, step)
            elif self.first_step_at is None and reply.step > reply.resume_step and is_server(self.spec, self.task.type):
                self.first_step_at = clocks.monotonic()  # it makes none itself
        await self.look_after_children()

    async def _let_go(self, child: Child) -> None:
        """Ends a child of an earlier generation. A program may take its time: it is not waited for."""
        if self.spec.program:
            child.let_go()
        else:
            await child.dismiss()

    async def go_again(self, generation: int, step: int) -> None:
        """Replaces a child that died, unless the back-off has not passed, or it is an evaluator's that always dies."""
        if self.task.type == "evaluator" and self.stillborn > self.spec.max_restarts:
            return
        if clocks.monotonic() >= self._retry_at:
            self.restarts, self.restarted_for = self.restarts + 1, self.loss
            self._retry_at = clocks.monotonic() + BACKOFF_SECONDS[min(self.restarts, len(BACKOFF_SECONDS) - 1)]
            await self.go(generation, step)

    async def wait_for_change(self, seconds: float) -> None:
        """Waits until something changes here, at most that many seconds."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.changed.wait(), seconds)
        self.changed.clear()

    @property
    def has_failed(self) -> bool:
        """Whether an evaluator's program has ended with an error, or could not be started."""
        child = self.running
        return bool(self.not_started) if child is None else not child.alive and child.result is None

    @property
    def restarts_alone(self) -> bool:
        return restarts_alone(self.spec, self.task.name, task_name(*self.task.chief))

    @property
    def seconds_to_stop(self) -> float | None:
        """The time that is left to a task that was asked to stop, to hear from its chief."""
        if self.leaving_since is None:
            return None
        return max(LAST_REPLY_SECONDS, self.leaving_since + self.spec.deadlines.stop - clocks.monotonic())

    @property
    def stop_deadline_passed(self) -> bool:
        return self.leaving_since is not None and clocks.monotonic() - self.leaving_since > self.spec.deadlines.stop

    # Children. ------------------------------------------------------------------------------------

    async def prepare_child(self) -> None:
        """Starts the first child, which waits for its order. A program starts with its generation."""
        if has_ring(self.spec, self.task.counts):
            self.listener = sockets.listen_for_gradients(self.task)
            self.gradients = self.listener.getsockname()[1]
        if self.spec.runs.takes_orders:
            # The job waits for the import of the others, which on one machine share its CPUs with the servers.
            self.standby.child = await self.start_child(ahead=is_server(self.spec, self.task.type))

    async def start_child(self, generation: int = 0, *, ahead: bool = False) -> Child:
        """
        Args:
            ahead: whether its import may take longer, because nothing waits for it yet.
        """
        spec = self.spec
        take = self.logs.stream() if spec.page != "none" else None
        try:
            if spec.program:
                more = {**self.places, **self.importable}
                return await Program.run(spec, self.task, self.log, more, generation, self._on_child, self.clock, take)
            files = {environment.WORKLOAD: json.dumps(self._workload)}
            environ = {**child_environ.settings(spec, self.task), **self.places, **files}
            if ahead:
                environ[environment.AHEAD] = "1"
            if self.task.is_chief:
                environ[environment.LEASE] = lease.holder(self.spec.directory, self.incarnation)
            return await Child.start(self.task, self.log, environ, self._on_child, self.clock, take, self.listener)
        except OSError as error:  # for example lack of memory, or a log volume that became read-only
            what = error.filename or "a new process"
            raise UserError(f"{self.task.name}: {what}: {error.strerror}; look at memory, processes and disk") from None

    async def go(self, generation: int, resume_step: int) -> None:
        if (child := self.standby.take()) is None:
            try:
                child = await self.start_child(generation)
            except TrainerError as error:
                if not self.spec.program:
                    raise
                if self.task.type == "evaluator":
                    self._could_not_start(str(error))
                else:
                    self.fail(error)  # the chief ends the job, and names it
                return
        self.first_step_at, self.ended_early, self.not_started = None, 0, ""
        self.loss = None
        if self.running is not None and self.running.alive:
            await self.running.dismiss()
        self.running = self.newest = child
        child.last_sign = self.clock()
        child.go(generation, resume_step, self._ring(generation))

    def _ring(self, generation: int) -> Neighbours | None:
        """The task's neighbours in this generation. The key follows from the job's secret, the chief's lease and the
        generation, so that each generation has its own."""
        if self.listener is None:
            return None
        key = hmac.new(self.secret, f"ring {self._term} {generation}".encode(), "sha256")
        return Neighbours(self._following, key.hexdigest())

    def _could_not_start(self, why: str) -> None:
        """An evaluator's program could not be started: as one that failed, it is tried again, and ends no job."""
        self.stillborn += 1
        self.loss = Loss(Cause.NOT_STARTED, why)
        self.not_started = str(self.loss)
        log_line(f"{self.task.name}: its program {self.loss}")

    async def look_after_children(self) -> None:
        child = self.running
        if child is not None and child.alive:
            limit = child.silence_limit(self.spec.deadlines)
            silent = limit is not None and child.hangs(limit)
            if why := await self.stacks.look(child, child.silence(limit) if limit and silent else None):
                child.kill(why)
        if self.standby.due(self.first_step_at) and self.leaving_since is None and not self._is_finishing():
            self.standby.child = await self.start_child(ahead=True)

    def _on_child(self, child: Child, event: Event | Exited) -> None:
        match event:
            case events.Line(text):
                log_line(text)
            case events.Start() if event.line is not None:
                log_line(f"{event.line} generation={child.generation}")
            case events.Scored():
                self.stillborn = 0
            case events.Failed() if self.task.type == "evaluator":
                pass  # the job continues without it, and this task tries again
            case events.Failed() if child is self.running or self.running is None:
                self.loss = Loss(Cause.ERROR, code=int(failure_code(event.code)), error=event.message)
            case events.Step() if self.first_step_at is None and child is self.running:
                self.first_step_at = clocks.monotonic()
                self.stillborn = 0
                if self.spec.runs.takes_orders:
                    self._look_at_workload()
            case Exited() if child is self.running and not child.status.stopped_well:
                self._child_ended(child)
            case Exited() if child is self.standby.child:
                self.standby.lost(child, training=self.running is not None)
        if not isinstance(event, events.Step) or self.task.is_chief:
            self.changed.set()

    def _look_at_workload(self) -> None:
        """Repeats the child's check: data(), model() and loss() may have imported modules since it was loaded."""
        try:
            require_unchanged(self.spec, self._workload)
        except UserError as error:
            self.fail(error)

    def _child_ended(self, child: Child) -> None:
        if child.result is not None or child.dismissed:
            return
        if self.spec.program and self.leaving_since is not None:
            return
        loss, evaluates = child.loss(), self.task.type == "evaluator"
        if self.loss is None or not self.loss.ends_the_job or loss.ends_the_job:  # fail() may have come before
            self.loss = loss
        if evaluates:
            self.stillborn += 1
        if not self.restarts_alone or (child.failed and not evaluates):
            self.ended_early = child.generation
        if child.out_of_memory:
            self.standby.too_much()
        if self.phase == "running" and self.leaving_since is None and (evaluates or not self.loss.ends_the_job):
            log_line(f"{self.task.name}: {self.spec.runs.called} lost ({self.loss}); its log: {self.log}")

    def _stopping_well(self, child: Child) -> bool:
        """Whether the child was asked to stop and may still save, until the deadline."""
        return self.leaving_since is not None and not self.stop_deadline_passed and self._has_something_to_save(child)

    def _has_something_to_save(self, child: Child) -> bool:
        return not self.spec.runs.checkpoints or (bool(child.status.step) and self.spec.traits.trains)

    def _is_finishing(self) -> bool:
        return self.running is not None and (self.running.status.finishing or self.running.status.trained)

    async def end_children(self) -> None:
        self.phase = "done"
        for child in (self.running, self.standby.child):
            if child is not None and child.alive:
                await child.dismiss()
        if self.listener is not None:
            self.listener.close()

    def kill_children(self) -> None:
        """Ends the children at once, because another process has this one's place: what they would save in the time of
        a stop could overwrite its files."""
        for child in (self.running, self.standby.child):
            if child is not None:
                child.dismissed = True
                child.kill()

    def leave(self) -> None:
        if self.leaving_since is None:
            self.leaving_since = clocks.monotonic()
            self.leaves.set()
            if self.running is not None and self._has_something_to_save(self.running):
                self.running.stop()
            elif self.running is not None and not is_server(self.spec, self.task.type):
                # No step yet, or not a loop of ours: there is nothing to save, and the child would not react.
                self.running.dismissed = True
                self.running.kill()
            self.changed.set()
