"""The page of a running job: its curves are sampled from the chief's snapshots, kept in history.json, and sent to
readers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Collection, Sequence

from trainer import clocks
from trainer.debug import redaction
from trainer.job import environment
from trainer.job.cluster import Task
from trainer.job.errors import Exit, TrainerError
from trainer.job.messages import command_line
from trainer.job.spec import JobSpec
from trainer.model_dir import history, layout
from trainer.model_dir.files import json_text
from trainer.model_dir.history import TASKS_A_SECOND, History, Mark
from trainer.page import document, outcome
from trainer.page.document import View
from trainer.page.lines import LogQuery
from trainer.page.marks import marks, marks_of
from trainer.page.outcome import Job
from trainer.protocol.facts import Entry
from trainer.protocol.log_lines import log_line
from trainer.protocol.status import End, JobStatus
from trainer.supervisor.task.job_logs import JobLogs
from trainer.supervisor.views.sampler import Point, job_point, nested, tasks_point
from trainer.supervisor.views.snapshot import Snapshot

SAVE_SECONDS = 30.0
"""Time between two saves of history.json."""
SAVE_SHARE = 200
"""It is saved at intervals of at least so many times the time that it took: of a thousand tasks a second."""
LAST_SAVE_SECONDS = 5.0
"""Time for the last save: model_dir may be on a volume that does not answer."""
FIRST_LINES_SECONDS, FIRST_LINES_POLL_SECONDS = 3.0, 0.1
"""Time for the lines of all tasks, which come with their reports."""
MOST_WAITING = 100
"""Events that a reader has not read yet; then it is dropped, and asks again."""


class LivePage:
    """Source of the page that the chief serves. Nothing here may end the job, or make it wait."""

    def __init__(
        self,
        spec: JobSpec,
        task: Task,
        logs: JobLogs,
        status: Callable[[], JobStatus],
        tasks: Callable[[], Collection[str]],
        require_lease: Callable[[], None],
    ) -> None:
        """
        Args:
            status: the job's status now.
            tasks: the names of the tasks that report now.
            require_lease: raises an error if another chief has taken this one's place.
        """
        self._spec, self._task, self._logs = spec, task, logs
        self._status, self._tasks, self._require_lease = status, tasks, require_lease
        self._started: float | None = None
        self._readers: set[asyncio.Queue[str]] = set()
        self._sent_status = ""
        self._rows_sent_at = self._save_at = self._may_save_at = 0.0
        self._writing, self._written, self._written_at = asyncio.Lock(), "", 0.0
        """The last document that was asked for, and when it was begun."""
        self._begin(History())
        self._snapshot: Snapshot | None = None
        self._facts: list[Entry] = []
        """Facts that were not shown yet."""
        self._older: list[Mark] = []
        """The marks of version 0.2, which had no journal."""
        self._outcome: dict[str, object] | None = None
        self._observed = asyncio.Event()
        self._over = False

    def _begin(self, kept: History) -> None:
        kept.fit(len(self._task.members()))
        self._history = kept

    # What it serves. ----------------------------------------------------------------------------------

    async def state(self) -> str:
        asked = clocks.monotonic()
        async with self._writing:  # of a thousand tasks it is a megabyte, and after a restart all pages ask at once
            if self._written_at < asked:
                begun = clocks.monotonic()
                view = self._view(self._status())
                self._written = await asyncio.to_thread(document.text, view, self._history.copy())
                self._written_at = begun
            return self._written

    async def logs(self, query: LogQuery) -> str:
        if self._logs.look():  # so that the first answer has all tasks, in the order of time
            await self._until_all_have_sent()
        return json_text(self._logs.find(query))

    async def _until_all_have_sent(self) -> None:
        deadline = clocks.monotonic() + FIRST_LINES_SECONDS
        while clocks.monotonic() < deadline and not self._logs.have_all(self._tasks()):
            await asyncio.sleep(FIRST_LINES_POLL_SECONDS)

    def subscribe(self) -> asyncio.Queue[str]:
        queue: asyncio.Queue[str] = asyncio.Queue(MOST_WAITING)
        self._readers.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[str]) -> None:
        self._readers.discard(queue)

    def _view(self, status: JobStatus, *, live: bool = True) -> View:
        job = document.job(self._spec, self._task, self._started)
        return View(live, status.document(), job, status.seconds_left, status.goodput, self._outcome)

    # What it observes. --------------------------------------------------------------------------------

    def observe(self, snapshot: Snapshot, facts: Sequence[Entry]) -> None:
        self._snapshot = snapshot
        self._facts += facts
        self._observed.set()

    async def run(self, started: float, term: int, *, continues: bool) -> None:
        """Shows what is observed, until the job is over.

        Args:
            started: when the job began, in seconds since the epoch.
            term: the number of the chief's lease.
            continues: whether an earlier chief may have kept a history.
        """
        self._started = started
        try:
            if continues:
                self._begin(await asyncio.to_thread(self._earlier, term))
            while not self._over:
                await self._observed.wait()
                self._observed.clear()
                await self._show()
        except Exception as error:  # a defect here is none of the job
            log_line(f"warning: the page is no longer updated: {type(error).__name__}: {error}")

    def _earlier(self, term: int) -> History:
        """What the chiefs before this one have kept. The facts of this one may be in the journal already, and are
        observed too."""
        directory = self._spec.directory
        try:
            kept = history.load(directory) or History()
        except ValueError as error:
            log_line(f"{layout.history(directory)}: {error}; a new one begins")
            kept = History()
        self._older = kept.marks
        kept.marks = [*self._older, *marks_of(directory, term)]
        return kept

    async def close(self) -> None:
        """Shows what was observed last, and ends all readers."""
        if self._snapshot is not None and not self._over:
            with contextlib.suppress(Exception):
                await self._show()
        for queue in self._readers:
            _put(queue, "")

    async def _show(self) -> None:
        """Adds a point, and marks; saves the history if it is time."""
        snapshot, new = self._snapshot, self._facts
        assert snapshot is not None
        self._facts, end = [], snapshot.job.end
        self._over = end is not None
        if end is not None and end.code == Exit.REPLACED:  # another chief continues the page
            return
        self._add(snapshot)
        for mark in marks(new):
            self._mark(mark)
        if end is not None:
            self._emit("status", json_text(snapshot.job.document()))
            with contextlib.suppress(asyncio.TimeoutError):
                finding = asyncio.to_thread(self._how_it_ended, snapshot.job, end)
                self._outcome = await asyncio.wait_for(finding, LAST_SAVE_SECONDS)
                self._emit("outcome", json_text(self._outcome))
        if end is not None or clocks.wall() >= self._save_at:
            await self._save(snapshot.job, live=end is None)

    def _how_it_ended(self, status: JobStatus, end: End) -> dict[str, object]:
        directory = self._spec.directory
        job = Job(status.job, self._task.name, directory, end, status.hangs)
        where = directory if environment.PARENT in os.environ else "JOB"  # elsewhere the folder is in a container
        debug = command_line(["trainer", "debug", where], [])
        redactor = redaction.of_job(self._spec.model_dump(mode="json"), self._spec.secrets)
        return outcome.outcome(job, debug, redactor.text)

    def _add(self, snapshot: Snapshot) -> None:
        now, made = snapshot.time, self._history
        self._logs.tick()
        job = job_point(snapshot)
        tasks: Point = tasks_point(snapshot) if self._rows_are_due(now, len(snapshot.job.tasks)) else {}
        if made.job.due(now):
            made.job.add(now, job)
        if tasks and made.tasks.due(now):
            made.tasks.add(now, tasks)
        if self._readers:
            self._send(snapshot, job, tasks)

    def _rows_are_due(self, now: float, tasks: int) -> bool:
        return self._history.tasks.due(now) or (
            bool(self._readers) and now >= self._rows_sent_at + tasks / TASKS_A_SECOND
        )

    def _mark(self, mark: Mark) -> None:
        self._history.mark(mark)
        if mark.kind not in ("checkpoint", "score"):  # what ends a chief comes soon after what it does not know yet
            self._save_at = self._may_save_at
        self._emit("mark", json_text(mark.document()))

    # Readers and the file. ----------------------------------------------------------------------------

    def _send(self, snapshot: Snapshot, job: Point, tasks: Point) -> None:
        known = {"eta": snapshot.job.seconds_left, "goodput": snapshot.job.goodput}
        point = {"time": snapshot.time, "job": nested(job), "tasks": nested(tasks), **known}
        self._emit("points", json_text(point))
        if tasks:
            self._rows_sent_at = snapshot.time
            status = json_text(snapshot.job.document())
            if status != self._sent_status:
                self._sent_status = status
                self._emit("status", status)

    def _emit(self, name: str, text: str) -> None:
        for queue in self._readers:
            _put(queue, f"event: {name}\ndata: {text}\n\n")

    async def _save(self, status: JobStatus, *, live: bool) -> None:
        begun, view = clocks.monotonic(), self._view(status, live=live)
        saving = asyncio.create_task(asyncio.to_thread(self._write, view, self._history.copy()))
        await asyncio.wait({saving}, timeout=None if live else LAST_SAVE_SECONDS)
        spent, now = clocks.monotonic() - begun, clocks.wall()
        self._may_save_at = now + SAVE_SHARE * spent
        self._save_at = max(self._may_save_at, now + SAVE_SECONDS)

    def _write(self, view: View, kept: History) -> None:
        kept.marks = self._older  # the others are in the journal
        with contextlib.suppress(TrainerError):  # it is tried again
            self._require_lease()
            history.save(self._spec.directory, document.pieces(view, kept))


def _put(queue: asyncio.Queue[str], event: str) -> None:
    """Ends a reader that does not keep up: its browser asks for the whole document again."""
    try:
        queue.put_nowait(event)
    except asyncio.QueueFull:
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait("")
