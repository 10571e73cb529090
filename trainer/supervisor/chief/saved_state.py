"""What the chief keeps in model_dir over its own restarts: its running time, generation and progress."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from trainer import clocks, host
from trainer.job import environment
from trainer.job.errors import Exit, TrainerError
from trainer.job.spec import JobSpec
from trainer.model_dir import disk, fingerprint, layout, lease
from trainer.model_dir import state as job_state
from trainer.model_dir.files import write_json
from trainer.model_dir.lease import Lease, Predecessor
from trainer.model_dir.stacks import Stacks
from trainer.protocol.facts import Entry, Note
from trainer.supervisor.chief.journal import end_of, since_it_began
from trainer.supervisor.rendezvous import chronicle
from trainer.supervisor.rendezvous.chronicle import Chronicle
from trainer.supervisor.rendezvous.progress import Progress

SAVE_SECONDS = 5.0
"""Interval for saving the highest step, for the case that the chief is killed repeatedly."""


class Record:
    """state.json, and the lock and the lease of model_dir."""

    def __init__(self, spec: JobSpec, clock: Callable[[], float], incarnation: str, *, waits: bool = False) -> None:
        """
        Args:
            waits: takes no lease if the chief before this one still saves.
        """
        self._spec, self._directory, self._clock, self._incarnation = spec, spec.directory, clock, incarnation
        self.run = os.environ.get(environment.RUN, "")
        self.lease = Lease()
        age = host.process_age()
        self.refusal: TrainerError | None = None
        """Why model_dir cannot be used."""
        self.predecessor = Predecessor(self._directory, self.run)
        self.waits = waits and self.predecessor.saves()
        """Whether this is nothing yet but the wait for the chief before."""
        self.state = job_state.State(started=clocks.wall() - age)
        self._locked = True
        """Whether it has the lock; the chief of this run before it may still have it."""
        try:
            if not self.waits:
                self.lock = self._lock()
                self.lease = lease.take(self._directory, incarnation, self.run, host.boot_id())
                self.state = job_state.load(self._directory, clocks.wall() - age)
        except TrainerError as error:
            # The other tasks wait for their chief and must be notified of this end too.
            self.refusal = error
        boot, up = host.boot_id(), host.uptime()
        same = boot and boot == self.state.boot
        # The wall clock, which may step, is used only to compare with other machines.
        before = max(age, up - self.state.up if same else clocks.wall() - self.state.started)
        self.started = clocks.monotonic() - before
        ended = self.state.end or self._end_that_was_told()
        self._told = ended is not self.state.end
        """Whether the chief before told the others of the end, and was lost before it had saved it."""
        self.repeats = ended if ended and ended.run and ended.run == self.run and not _may_change(ended.code) else None
        """How this run ended before its chief was started again, if a restart changes nothing."""
        # A program that does not resume begins anew, in all tasks.
        self.hands_over = environment.HANDS_OVER in os.environ and spec.resume != "none"
        """Whether a stop leaves the job to the next chief of the run."""
        of_this_run = ended is not None and ended.code == Exit.STOPPED and ended.run == self.run
        self.handed_over = self.hands_over and bool(self.state.generation) and of_this_run
        """Whether the chief before was asked to stop, and left the job to this one."""
        self.continues = self.handed_over or (bool(self.state.generation) and ended is None)
        """Whether an earlier chief of this job was lost while it ran, or handed it over."""
        # A job that was stopped or suspended, and is started again later, has all its time again.
        self._begun = clocks.monotonic() if ended else self.started
        self.begins = not self.state.generation
        """Whether no generation of this job has formed before."""
        # After a stop or a failure they begin anew: that is no restart, and history.json has them all.
        anew = ended is not None and not self.handed_over
        self.chronicle = Chronicle() if anew else chronicle.of(self._kept(), self.state.restarts)
        if anew:
            self.state.hangs = []
        self.state.boot, self.state.up, self.state.end = boot, up - before, None
        self.progress = Progress(self.state.step, self.state.generations_without_progress)
        self._counts_files = not spec.runs.chief_watches
        self._saved = clock()
        self.accepted = False
        """Whether this start was accepted; a refused one must keep the state.json of the job that may be resumed."""

    def _end_that_was_told(self) -> job_state.End | None:
        """The end of this run in the journal, where it is before any other task hears of it."""
        if self.waits or self.refusal is not None or not self.state.generation or not self.run:
            return None
        told = end_of(self._directory, self.run)
        if told is None or told.code == Exit.OK or _may_change(told.code):
            return None
        return job_state.End(self._spec.name, told.code, told.message, self.run)

    def _kept(self) -> list[Entry]:
        """What happened before, if an earlier chief of this job was lost."""
        if not self.continues:
            return []
        earlier = [Entry(each.time, Note(each.text, each.task), kind=each.kind) for each in self.state.events]
        return [*(each for each in earlier if math.isfinite(each.time)), *since_it_began(self._directory)]

    def _document(self) -> dict[str, object]:
        return self._spec.model_dump(mode="json", exclude_defaults=True)

    def _lock(self) -> TextIO:
        """The lock of model_dir; without it if another chief of this run still has it: its pod was replaced."""
        try:
            return job_state.lock(self._directory, self._document())
        except job_state.InUse:
            if not lease.belongs_to(self._directory, self.run):
                raise
            self._locked = False
            return disk.open_lock(layout.lock(self._directory), make=False)

    def take_lock(self) -> None:
        """Takes the lock of model_dir that the chief before still had: without it, others see no job there."""
        if not self._locked:
            self._locked = disk.take_lock(self.lock)

    def renew(self, leaving: bool) -> bool:
        """Returns whether no other chief has taken this one's place.

        Args:
            leaving: whether this chief was asked to stop: one that comes then waits until this one has saved.
        """
        self.lease.leaving |= leaving
        if not lease.renew(self._directory, self.lease):
            return False
        with contextlib.suppress(OSError, TrainerError):  # it is tried again
            self._write_again()
        return True

    def _write_again(self) -> None:
        """Locks model_dir again after a program has emptied it, as some do to begin anew, and saves the state."""
        lock = layout.lock(self._directory)
        emptied = disk.is_folder(Path(self._directory)) and lock.name not in disk.names(lock.parent)
        if not emptied or self.lease.released:
            return
        before, self.lock = self.lock, self._lock()
        before.close()
        if self.accepted:
            job_state.save(self._directory, self.state)

    def require_lease(self) -> None:
        """To be called before a write. Makes model_dir again if a program has removed it.

        Raises:
            TrainerError: Exit.REPLACED, if another chief has taken this one's place.
        """
        if self.refusal is None:
            with contextlib.suppress(OSError):
                layout.make_own(self._directory)
            lease.require(self._directory, self._incarnation, self.lease.number)

    def _save(self, *, sync: bool = False) -> None:
        self.require_lease()
        self.state.restarts = dict(self.chronicle.restarts)
        job_state.save(self._directory, self.state, sync=sync)

    def seconds(self) -> float:
        """Seconds since the job's start, including those before a restart of the chief."""
        return clocks.monotonic() - self.started

    def seconds_of_this_start(self) -> float:
        """The same, but since the last start of a job that was stopped."""
        return clocks.monotonic() - self._begun

    def accept(self, control_port: int, incarnation: str) -> None:
        self.state.control_port, self.state.incarnation = control_port, incarnation
        self.state.launcher = int(os.environ.get(environment.PARENT, 0))
        self._save()
        write_json(layout.spec(self._directory), self._document())
        self.accepted = True

    def made_first_step(self, phases: dict[str, float]) -> None:
        """Saves how long the job took to make its first step, by phase."""
        self.state.phases = phases
        self.state.seconds_to_first_step = round(sum(phases.values()), 3)
        self._save()

    def save(self, generation: int) -> None:
        # What counts restarts outlives a loss of power, and no generation's number is used twice.
        without = self.progress.generations_without_progress
        sync = generation != self.state.generation or without < self.state.generations_without_progress
        self.state.generation, self._saved = generation, self._clock()
        self.state.step = self.progress.step
        self.state.generations_without_progress = without
        self._save(sync=sync)

    def save_progress(self, generation: int, now: float) -> None:
        """Saves progress in case the chief is killed: at the first of a generation at once, then at intervals."""
        due = self.progress.step != self.state.step and now - self._saved > SAVE_SECONDS
        due |= dict(self.chronicle.restarts) != self.state.restarts
        if due or self.progress.generations_without_progress < self.state.generations_without_progress:
            self.save(generation)

    def save_hangs(self, hangs: list[Stacks], generation: int) -> None:
        """Saves new ones: `trainer debug` shows them after the job has ended, too."""
        if hangs != self.state.hangs:
            self.state.hangs = hangs
            self.save(generation)

    def wrote(self) -> bool:
        """Whether a program's files in model_dir have changed since the last generation formed."""
        if not self._counts_files:
            return False
        before, self.state.files = self.state.files, fingerprint.fingerprint(self._directory)
        return bool(before) and before != self.state.files

    @property
    def has_files(self) -> bool:
        """Whether a program has files in model_dir."""
        return self.state.files not in ("", fingerprint.EMPTY)

    def close(self, end: job_state.End, generation: int) -> bool:
        """The job has ended: keeps what the next start, and `trainer status`, need. Returns whether the disk has taken
        it."""
        if self.refusal is not None:
            return True
        self.require_lease()
        self.state.end, saved = end, True
        if end.code == Exit.STOPPED:
            self.progress.generations_without_progress = 0
            self.save(generation)
        elif end.code == Exit.OK:
            job_state.forget(self._directory)
        elif self.accepted or self._told:
            self.state.generation = generation
            saved = job_state.fail(self._directory, self.state)
        lease.release(self._directory, self.lease)
        return saved


def _may_change(code: int) -> bool:
    return next((each.retryable for each in Exit if each == code), True)
