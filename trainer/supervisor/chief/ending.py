"""How the chief ends its job: it writes the result, saves the outcome, and notifies all tasks."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.job import environment
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.model_dir import result
from trainer.model_dir.state import End
from trainer.protocol.events import Done
from trainer.protocol.facts import Ended, Entry
from trainer.protocol.log_lines import STOPPED_PREFIX, log_line
from trainer.supervisor.chief import earlier_run, last_replies, lease_keeper, result_file
from trainer.supervisor.task.figures import figures_of, line, main_figures

if TYPE_CHECKING:
    from trainer.supervisor.chief.end_report import EndReport
    from trainer.supervisor.chief.saved_state import Record
    from trainer.supervisor.children.child import Child
    from trainer.supervisor.rendezvous.state_machine import Rendezvous
    from trainer.supervisor.task.agent import Agent

TERMINATION_MESSAGE = Path("/dev/termination-log")
"""terminationMessagePath of every container by default; the file exists there alone."""
MOST_MESSAGE_BYTES = 4096
"""The kubelet cuts off the rest."""


class JobEnd:
    """The end of a job, as one chief brings it about."""

    def __init__(self, agent: Agent, record: Record, rendezvous: Rendezvous, end_report: EndReport) -> None:
        self._agent, self._record, self._rendezvous, self._end_report = agent, record, rendezvous, end_report
        self._spec = agent.spec
        self.key: Mapping[str, object] = {}
        """The job's compatibility key, for the result."""
        self.warnings: list[str] = []
        """Warnings for the result."""

    async def succeed(self, child: Child, done: Done) -> None:
        """Writes the result of the chief's child and ends the job as a success, if that result is valid."""
        agent, rendezvous = self._agent, self._rendezvous
        figures = figures_of(self._spec, child, done, self._record.state)
        if figures is None:
            rendezvous.end(Exit.BUG, f"{agent.task.name}: its child ended without a valid result")
            return
        found = result_file.result_of(
            self._spec,
            rendezvous,
            figures,
            seconds=self._record.seconds(),
            warnings=[*self.warnings, *([child.left_behind] if child.left_behind else [])],
            versions=agent.versions,
            key=self.key,
        )

        def write() -> None:
            self._record.require_lease()  # another chief may have taken it while this waited for the disk
            result.write(self._spec.directory, found)

        rendezvous.settled = True
        try:
            await asyncio.to_thread(write)  # a graph's result may take seconds
        finally:
            rendezvous.settled = False
        self._end_report.figures = main_figures(figures)
        log_line(line(figures, rendezvous.generation))
        rendezvous.end(Exit.OK, "", done.step)

    def stop(self) -> None:
        """Ends the job because it was asked to stop, and its chief has saved what it could."""
        kept = self._kept()
        then = f"{kept}; the same command resumes" if kept else "the same command starts the program again"
        self._rendezvous.end(Exit.STOPPED, f"{STOPPED_PREFIX}{then}{self._lost_by_the_deadline()}")

    def _lost_by_the_deadline(self) -> str:
        """Says that the chief's child was killed while it may still have saved."""
        agent, child, seconds = self._agent, self._agent.newest, self._spec.deadlines.stop
        if child is None:
            return ""
        late = child.alive and agent.stop_deadline_passed and not child.status.stopped_well
        text = f"had not ended within {seconds:g} s (deadlines.stop), and was killed"
        return f"; the {self._spec.runs.called} of {agent.task.name} {text}" if late or child.out_of_time else ""

    async def hand_over(self) -> Exit:
        """Leaves the job to the next chief of this run, which takes this one's place: the other tasks wait for it."""
        self._rendezvous.settled = True
        await self._agent.end_children()
        kept = self._kept() or "the program starts again"
        message = f"{STOPPED_PREFIX}{kept}; the other tasks wait for the next chief"
        log_line(message)
        try:
            end = End(self._spec.name, int(Exit.STOPPED), message, self._record.run)
            self._record.close(end, self._rendezvous.generation)
        except TrainerError as error:  # the next one finds the job as that of a chief that was lost
            log_line(f"warning: {error}")
        await asyncio.sleep(last_replies.LAST_ANSWERS_SECONDS)
        return Exit.STOPPED

    def _kept(self) -> str:
        """What a stopped job resumes from; empty for a program."""
        if not self._spec.runs.checkpoints:
            return ""
        step = earlier_run.newest_step(self._spec)
        child = self._agent.running
        if step is None:
            return "no checkpoint was written yet"
        if child is not None and child.status.step is not None:
            return f"the checkpoint of step {step} is kept"
        return f"the newest checkpoint is that of step {step}"  # no child has verified it

    async def finish(self) -> Exit:
        """Ends the children, saves the job's outcome, and notifies all tasks, also those that restart now."""
        rendezvous = self._rendezvous
        if rendezvous.code is Exit.REPLACED:
            self._agent.kill_children()
        await self._agent.end_children()
        closed = self._close()
        if rendezvous.code is not Exit.REPLACED:  # otherwise the tasks are notified by the other chief
            await asyncio.gather(
                last_replies.until_all_are_notified(rendezvous, self._agent),
                self._end_report.tell(self._agent.leaving_since),
            )
        if not closed and rendezvous.code is not Exit.REPLACED:
            self._close()  # the disk may have room again
        if rendezvous.code is Exit.OK:
            await asyncio.to_thread(_leave_result, self._spec.directory)
        elif rendezvous.code is not Exit.REPLACED:
            _leave_message(failure_message(rendezvous.chronicle.since(0), rendezvous.message))
        return rendezvous.code

    def _close(self) -> bool:
        """Saves how the job has ended; returns whether the disk has taken it. What was trained is saved already."""
        rendezvous = self._rendezvous
        end = End(self._spec.name, int(rendezvous.code), rendezvous.message, self._record.run)
        try:
            return rendezvous.code is Exit.REPLACED or self._record.close(end, rendezvous.generation)
        except TrainerError as error:
            if error.code is Exit.REPLACED:
                lease_keeper.give_up_place(rendezvous, self._agent)
            return False


def failure_message(entries: Sequence[Entry], message: str) -> bytes:
    """The newest facts of a job that failed, for `trainer debug`, and the last line of its message."""
    last = f"\ntrainer: {message.splitlines()[-1] if message else ''}".encode()[: MOST_MESSAGE_BYTES // 2]
    documents: list[dict[str, object]] = []
    for entry in reversed([each for each in entries if each.fact.news or isinstance(each.fact, Ended)]):
        longer = [entry.document(), *documents]
        if len(json.dumps({"facts": longer})) + len(last) > MOST_MESSAGE_BYTES:
            break
        documents = longer
    return json.dumps({"facts": documents}).encode() + last


def _leave_result(model_dir: str) -> None:
    """Leaves the main part of result.json, unless it is too long."""
    try:
        found = result.read(model_dir)
    except UserError:  # the result itself is in model_dir
        return
    message = json.dumps(result.brief(found)).encode() if found else b""
    if len(message) <= MOST_MESSAGE_BYTES:
        _leave_message(message)


def _leave_message(message: bytes) -> None:
    """Writes the termination message of a container of Kubernetes, where this is one.

    For `trainer status` and `trainer debug`: model_dir is in a volume, which only a pod that runs can read, but the
    kubelet keeps what a container has written to this file.
    """
    if environment.PARENT in os.environ or not TERMINATION_MESSAGE.exists():  # `trainer local` may run in any container
        return
    with contextlib.suppress(OSError):
        TERMINATION_MESSAGE.write_bytes(message)
