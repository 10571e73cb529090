"""`trainer task`: the program a container runs.

It reads TF_CONFIG and the job, agrees with its peers through the chief's supervisor, runs TensorFlow in a
child, and ends when the chief says that the job is over. One loop: report what is so, do what the reply says.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import signal
import time
import uuid
from pathlib import Path
from typing import Any

from trainer.job import load, tf_config
from trainer.job.errors import Exit, TrainerError
from trainer.job.spec import JobSpec
from trainer.job.tf_config import Task
from trainer.runtime import last_end, platform, preflight
from trainer.runtime.child import is_server
from trainer.runtime.lines import here_line, say, say_error
from trainer.runtime.process import Child
from trainer.runtime.rendezvous import Reply, Report
from trainer.workloads import workload

STANDBY_AFTER_SECONDS = 10.0
"""Steady training before a spare child is started: the import costs seconds of CPU."""
RETRY_SECONDS = 0.2
BACKOFF_SECONDS = (0.0, 0.2, 0.5, 1.0, 2.0, 5.0)
SAY_SECONDS = 10.0
"""How often a task that waits says what for."""


def main() -> int:
    """Runs one task to its end; returns the exit code."""
    try:
        platform.die_with_parent(signal.SIGTERM)
        spec = load.load_environment()
        task = tf_config.from_environment(spec)
        log = preflight.log_file(spec, task)
    except TrainerError as error:
        say_error(str(error))
        return int(error.code)
    if (code := last_end.again(log)) is not None:
        return int(code)
    try:
        workload.check(spec)
        code = asyncio.run(Supervisor(spec, task, log).run())
    except TrainerError as error:
        say_error(str(error))
        code = error.code
    last_end.remember(log, code)
    return int(code)


class Supervisor:
    """One task's supervisor. The chief's has a `Chief` beside it, and asks that one without a network."""

    def __init__(self, spec: JobSpec, task: Task, log: Path) -> None:
        self.spec, self.task, self.log = spec, task, log
        self.incarnation = uuid.uuid4().hex
        self.versions = platform.versions()
        self.spec_digest = hashlib.sha256(spec.model_dump_json().encode()).hexdigest()[:12]
        self.running: Child | None = None
        self.spare: Child | None = None
        self.changed = asyncio.Event()
        self.leaving_since: float | None = None
        self.lost, self.reason = 0, ""
        self.failure: tuple[int, str] | None = None
        self.restarts, self._retry_at = 0, 0.0
        self.first_step_at: float | None = None
        self.chief_seen = time.monotonic()
        self.phase = "forming"

    async def run(self) -> Exit:
        say(here_line(self.spec, self.task, self.versions))
        if self.task.type != "evaluator":
            # The child's import takes longest: it goes first.
            self.spare = await self._start_child()
        from trainer.runtime import control
        from trainer.runtime.chief import Chief

        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._leave)
        preflight.check_tensorflow_port(self.task)
        chief = Chief(self) if self.task.is_chief else None
        host, port = preflight.control_address(self.task)
        identity = {"job": self.spec.name, "task": self.task.name, "incarnation": self.incarnation}
        runner = await control.serve(
            port, host, identity, chief.status if chief else self.status, chief.answer if chief else None
        )
        try:
            async with control.client() as session:
                code = await (chief.run(session) if chief else self._follow(session))
        finally:
            await self.end_children()
            await runner.cleanup()
        return code

    # What the loop is made of; the chief uses these too. ------------------------------------------

    def report(self) -> Report:
        child = self.running
        return Report(
            task=self.task.name,
            incarnation=self.incarnation,
            cluster=self.task.digest,
            spec=self.spec_digest,
            versions=self.versions,
            generation=child.generation if child and child.alive else 0,
            lost=self.lost,
            reason=self.reason,
            failure=self.failure,
            leaving=self.leaving_since is not None,
            restarts=self.restarts,
            standby=self.spare is not None and self.spare.warm,
            status={"pid": os.getpid(), **(child.status if child else {})},
        )

    def status(self) -> dict[str, Any]:
        """This task's own view, for /status."""
        child = self.running
        return {
            "job": self.spec.name,
            "task": self.task.name,
            "strategy": self.spec.strategy,
            "phase": self.phase,
            "generation": child.generation if child else 0,
            "restarts": self.restarts,
            "standby": self.spare is not None and self.spare.warm,
            **(child.status if child else {}),
        }

    async def act(self, reply: Reply) -> None:
        """Does what the chief's reply asks for: kill, start or leave the child alone."""
        self.phase = reply.phase
        child = self.running
        if reply.phase == "forming" and child is not None:
            if child.alive and not self._stopping_well(child):
                child.kill()
                await child.ended()
            if not child.alive:
                self.running = None
        elif reply.phase == "running" and self.leaving_since is None:
            if self.task.type == "evaluator" and not reply.step:
                # Nothing to score yet; its import would slow down those who train.
                pass
            elif child is None or child.generation != reply.generation:
                await self._go(reply.generation, reply.resume_step)
            elif not child.alive and self._restarts_alone() and time.monotonic() >= self._retry_at:
                self.restarts += 1
                self._retry_at = time.monotonic() + BACKOFF_SECONDS[min(self.restarts, len(BACKOFF_SECONDS) - 1)]
                await self._go(reply.generation, reply.resume_step)
        await self._look_after_children()

    async def wait_for_change(self, seconds: float) -> None:
        """Until something changed here, or that long."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self.changed.wait(), seconds)
        self.changed.clear()

    @property
    def stop_deadline_passed(self) -> bool:
        return self.leaving_since is not None and time.monotonic() - self.leaving_since > self.spec.deadlines.stop

    # A task that is not the chief. ----------------------------------------------------------------

    async def _follow(self, session: Any) -> Exit:
        from trainer.runtime import control

        chief, known, said = self.task.control_address(*self.task.chief), 0, time.monotonic()
        while True:
            asking = asyncio.create_task(control.send_report(session, chief, self.report(), known))
            change = asyncio.create_task(self.changed.wait())
            await asyncio.wait({asking, change}, return_when=asyncio.FIRST_COMPLETED)
            self.changed.clear()
            change.cancel()
            if not asking.done():
                # Something changed here while the chief held our report: send the new one at once.
                asking.cancel()
                await asyncio.wait({asking})
                known = 0
                continue
            now = time.monotonic()
            try:
                reply = asking.result()
            except ConnectionError as error:
                if self.leaving_since is not None:
                    return Exit.STOPPED
                await self._look_after_children()
                silent = now - self.chief_seen
                if silent > self.spec.deadlines.chief_lost:
                    say_error(self._chief_lost(str(error)))
                    return Exit.CHIEF_LOST
                if now - said > SAY_SECONDS:
                    say(f"{self.task.name} waits for the chief ({error}), {silent:.0f} s so far")
                    said = now
                await self.wait_for_change(RETRY_SECONDS)
                continue
            self.chief_seen, known = now, reply.version
            if reply.phase in ("done", "failed"):
                return await self._end(reply)
            await self.act(reply)
            if self._may_leave(reply):
                return Exit.STOPPED

    def _chief_lost(self, why: str) -> str:
        name = "{}:{}".format(*self.task.chief)
        return (
            f"{self.task.name} has had no word from its chief ({name}) for {self.spec.deadlines.chief_lost:g} s "
            f"(deadlines.chief_lost): {why}; is it running, and is its address in TF_CONFIG right?"
        )

    async def _end(self, reply: Reply) -> Exit:
        self.phase = reply.phase
        if reply.phase == "failed":
            say_error(reply.message)
        elif self.task.type == "evaluator":
            if self.running is None or not self.running.alive:
                await self._go(reply.generation, reply.resume_step)
            assert self.running is not None
            self.running.finalise(reply.step)
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.running.ended(), self.spec.deadlines.rendezvous)
        return Exit(reply.code)

    def _may_leave(self, reply: Reply) -> bool:
        if self.leaving_since is None:
            return False
        alone = self._restarts_alone() or self.task.type == "evaluator"
        over = reply.phase != "running" or self.running is None or not self.running.alive
        return alone or over or self.stop_deadline_passed

    # Children. ------------------------------------------------------------------------------------

    async def _start_child(self) -> Child:
        group = self.spec.tasks.of(self.task.type)
        # A server without GPUs of its own would take the memory of all that it sees.
        hidden = {} if group.gpus else {"CUDA_VISIBLE_DEVICES": "-1"}
        return await Child.start(self.task, self.log, hidden, self._on_child)

    async def _go(self, generation: int, resume_step: int) -> None:
        child = self.spare if self.spare is not None and self.spare.alive else await self._start_child()
        self.spare, self.first_step_at, self.lost = None, None, 0
        if self.running is not None and self.running.alive:
            self.running.kill()
            await self.running.ended()
        self.running = child
        child.last_sign = time.monotonic()
        child.go(generation, resume_step)

    async def _look_after_children(self) -> None:
        child, now = self.running, time.monotonic()
        if child is not None and child.alive:
            # The import of TensorFlow holds the GIL while its libraries load: until then silence is no hang.
            limit = self.spec.deadlines.hang if child.warm else self.spec.deadlines.rendezvous
            if now - child.last_sign > limit:
                child.kill(f"no sign of life for {limit:g} s")
        steady = self.first_step_at is not None and now - self.first_step_at > STANDBY_AFTER_SECONDS
        wanted = self.spec.warm_standby and not is_server(self.spec, self.task) and self.task.type != "evaluator"
        if steady and wanted and self.spare is None and self.leaving_since is None and not self._is_finishing():
            self.spare = await self._start_child()

    def _on_child(self, child: Child, event: dict[str, Any]) -> None:
        kind = event["event"]
        if kind == "line":
            say(event["text"])
        elif kind == "start" and "line" in event:
            say(f"{event['line']} generation={child.generation}")
        elif kind == "error" and (child is self.running or self.running is None):
            self.failure = (event["code"], event["message"])
        elif kind == "step" and self.first_step_at is None and child is self.running:
            self.first_step_at = time.monotonic()
        elif kind == "exit" and child is self.running and not child.status.get("stopped_well"):
            self._child_ended(child)
        elif kind == "exit" and child is self.spare:
            self.spare = None
        if kind == "stopped":
            child.status["stopped_well"] = True
        if kind != "step" or self.task.is_chief:
            self.changed.set()

    def _child_ended(self, child: Child) -> None:
        if child.result is not None:
            return
        self.reason = child.why_it_ended()
        if not self._restarts_alone():
            self.lost = child.generation
        if self.phase == "running" and self.failure is None:
            say(f"{self.task.name}: child lost ({self.reason}); its log: {self.log}")

    def _restarts_alone(self) -> bool:
        """Whether this task's child may die without the others being restarted."""
        worker = self.spec.strategy == "parameter_server" and self.task.type == "worker"
        return worker or self.task.type == "evaluator"

    def _stopping_well(self, child: Child) -> bool:
        """A child that was asked to stop is left to save, until the deadline."""
        return self.leaving_since is not None and not self.stop_deadline_passed and self._has_something_to_save(child)

    def _has_something_to_save(self, child: Child) -> bool:
        # fit saves at the end of an epoch only: there it goes on.
        resumes_anywhere = self.spec.strategy != "graph" and self.spec.api != "keras_fit"
        return bool(child.status.get("step")) and resumes_anywhere

    def _is_finishing(self) -> bool:
        return self.running is not None and bool(self.running.status.keys() & {"finishing", "trained"})

    async def end_children(self) -> None:
        self.phase = "done"
        for child in (self.running, self.spare):
            if child is not None and child.alive:
                child.kill()
                await child.ended()

    def _leave(self) -> None:
        if self.leaving_since is None:
            self.leaving_since = time.monotonic()
            if self.running is not None and self._has_something_to_save(self.running):
                self.running.stop()
            elif self.running is not None and not is_server(self.spec, self.task):
                # Not one step yet, or not a loop of ours: there is nothing to save, and it would not listen.
                self.running.kill()
            self.changed.set()
