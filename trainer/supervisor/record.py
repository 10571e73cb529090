"""What the chief keeps in model_dir over its own restarts: its running time, generation and progress."""

from __future__ import annotations

import time
from collections.abc import Callable

from trainer import host
from trainer.job.errors import Exit, TrainerError
from trainer.job.spec import JobSpec
from trainer.model_dir import fingerprint
from trainer.model_dir import state as job_state
from trainer.supervisor.progress import Progress

SAVE_SECONDS = 5.0
"""Interval for saving the highest step, for the case that the chief is killed repeatedly."""


class Record:
    """state.json, and the lock of model_dir."""

    def __init__(self, spec: JobSpec, clock: Callable[[], float]) -> None:
        self._directory, self._clock = spec.directory, clock
        age = host.process_age()
        self.refusal: TrainerError | None = None
        """Why model_dir cannot be used."""
        try:
            self.lock = job_state.lock(self._directory)
            self.state = job_state.load(self._directory, time.time() - age)
        except TrainerError as error:
            # The other tasks wait for their chief and must be notified of this end too.
            self.refusal, self.state = error, job_state.State(started=time.time() - age)
        boot, up = host.boot_id(), host.uptime()
        same = boot and boot == self.state.boot
        # The wall clock, which may step, is used only to compare with other machines.
        before = max(age, up - self.state.up if same else time.time() - self.state.started)
        self.started = time.monotonic() - before
        # A job that was stopped, and is started again later, has all its time again.
        self._begun = time.monotonic() if self.state.end else self.started
        self.continues = bool(self.state.generation) and self.state.end is None
        """Whether an earlier chief of this job was lost while it ran."""
        self.state.boot, self.state.up, self.state.end = boot, up - before, None
        self.progress = Progress(self.state.step, self.state.generations_without_progress)
        self._counts_files = not spec.runs.chief_watches
        self._saved = clock()
        self.accepted = False
        """Whether this start was accepted; a refused one must keep the state.json of the job that may be resumed."""

    def seconds(self) -> float:
        """Seconds since the job's start, including those before a restart of the chief."""
        return time.monotonic() - self.started

    def seconds_of_this_start(self) -> float:
        """The same, but since the last start of a job that was stopped."""
        return time.monotonic() - self._begun

    def accept(self, control_port: int, incarnation: str) -> None:
        self.state.control_port, self.state.incarnation = control_port, incarnation
        job_state.save(self._directory, self.state)
        self.accepted = True

    def made_first_step(self, phases: dict[str, float]) -> None:
        """Saves how long the job took to make its first step, by phase."""
        self.state.phases = phases
        self.state.seconds_to_first_step = round(sum(phases.values()), 3)
        job_state.save(self._directory, self.state)

    def save(self, generation: int) -> None:
        self.state.generation, self._saved = generation, self._clock()
        self.state.step = self.progress.step
        self.state.generations_without_progress = self.progress.generations_without_progress
        job_state.save(self._directory, self.state)

    def save_progress(self, generation: int, now: float) -> None:
        """Saves progress in case the chief is killed: at the first of a generation at once, then at intervals."""
        due = self.progress.step != self.state.step and now - self._saved > SAVE_SECONDS
        if due or self.progress.generations_without_progress < self.state.generations_without_progress:
            self.save(generation)

    def wrote(self) -> bool:
        """Whether a program's files in model_dir have changed since the last generation formed."""
        if not self._counts_files:
            return False
        before, self.state.files = self.state.files, fingerprint.fingerprint(self._directory)
        return bool(before) and before != self.state.files

    def close(self, end: job_state.End, generation: int) -> None:
        """The job has ended: keeps what the next start, and `trainer status`, need."""
        self.state.end = end
        if end.code == Exit.STOPPED:
            self.progress.generations_without_progress = 0
            self.save(generation)
        elif end.code == Exit.OK:
            job_state.forget(self._directory)
        elif self.accepted:
            self.state.generation = generation
            job_state.fail(self._directory, self.state)
