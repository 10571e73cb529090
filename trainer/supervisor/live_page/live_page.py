"""The page of a running job: the chief samples what it knows, keeps it in history.json, and sends it to readers."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from trainer.job.errors import Exit, TrainerError
from trainer.model_dir import checkpoint, history, layout
from trainer.model_dir.files import json_text
from trainer.model_dir.history import TASKS_A_SECOND, History, Mark
from trainer.page import document
from trainer.page.document import View
from trainer.page.lines import LogQuery
from trainer.protocol.log_lines import log_line
from trainer.protocol.reports import Reply, Report
from trainer.supervisor.live_page.job_logs import JobLogs
from trainer.supervisor.live_page.pace import Pace
from trainer.supervisor.live_page.sampler import Point, Sampler, rows_of, tasks_point, used_of

if TYPE_CHECKING:
    from trainer.supervisor.chief.chief import Chief
    from trainer.supervisor.task.agent import Agent

SAMPLE_SECONDS = 1.0
SAVE_SECONDS = 30.0
SAVE_SHARE = 200
"""It is saved at intervals of at least so many times the time that it took: of a thousand tasks a second."""
LAST_SECONDS = 5.0
"""For the last save: model_dir may be on a volume that does not answer."""
FIRST_LINES_SECONDS, LOOK_SECONDS = 3.0, 0.1
"""For the lines of all tasks, which come with their reports."""
MOST_WAITING = 100
"""Events that a reader has not read yet; then it is dropped, and asks again."""


class LivePage:
    """Source of the page that the chief serves. Nothing here may end the job, or make it wait."""

    def __init__(self, agent: Agent, chief: Chief) -> None:
        self._agent, self._chief, self._spec = agent, chief, agent.spec
        self._readers: set[asyncio.Queue[str]] = set()
        self._sent_status = ""
        self._send_rows_at = self._save_at = self._may_save_at = 0.0
        self._over = False
        self._writing, self._written, self._written_at = asyncio.Lock(), "", 0.0
        """The last document that was asked for, and when it was begun."""
        self._logs = JobLogs(agent.task.name, agent.logs)
        self._begin(History())

    def _begin(self, found: History) -> None:
        found.fit(len(self._chief.rendezvous.tasks.required))
        self._history = found
        self._pace, self._sampler = Pace(found, time.time()), Sampler(self._spec)

    # What it serves. ----------------------------------------------------------------------------------

    async def state(self) -> str:
        asked = time.monotonic()
        async with self._writing:  # of a thousand tasks it is a megabyte, and after a restart all pages ask at once
            if self._written_at < asked:
                begun = time.monotonic()
                self._written = await asyncio.to_thread(document.text, self._view(), self._history.copy())
                self._written_at = begun
            return self._written

    async def logs(self, query: LogQuery) -> str:
        if self._logs.look():  # so that the first answer has all tasks, in the order of time
            await self._until_all_have_sent()
        return json_text(self._logs.find(query))

    async def _until_all_have_sent(self) -> None:
        members, deadline = self._chief.rendezvous.tasks.members, time.monotonic() + FIRST_LINES_SECONDS
        while time.monotonic() < deadline and not self._logs.have_all(members):
            await asyncio.sleep(LOOK_SECONDS)

    async def answer(self, report: Report, known: int) -> Reply:
        """Answers a report as the chief does, and takes the log lines in it, while a page shows them."""
        if self._chief.rendezvous.tasks.counts(report):
            self._logs.take(report)
        reply = await self._chief.answer(report, known)
        after = self._logs.after(report.task, report.incarnation)
        return reply if reply.lines_after == after else replace(reply, lines_after=after)

    def subscribe(self) -> asyncio.Queue[str]:
        queue: asyncio.Queue[str] = asyncio.Queue(MOST_WAITING)
        self._readers.add(queue)
        return queue

    def unsubscribe(self, queue: asyncio.Queue[str]) -> None:
        self._readers.discard(queue)

    def _view(self, *, live: bool = True) -> View:
        job = document.job(self._spec, self._agent.task, self._chief.record.state.started)
        return View(live, self._chief.status().document(), job, self._seconds_left())

    def _seconds_left(self) -> float | None:
        child = self._agent.running
        return self._pace.seconds_left(child.status.steps) if child else None

    # What it does. ------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Samples until the job is over."""
        await self._until_accepted()
        record = self._chief.record
        found = None if record.begins else await asyncio.to_thread(self._earlier)
        self._begin(found or History(wall=record.seconds()))
        try:
            while not self._chief.rendezvous.over:
                await self._sample(time.time())
                await asyncio.sleep(SAMPLE_SECONDS)
            await self._end()
        except Exception as error:  # a defect here is none of the job
            log_line(f"warning: the page is no longer updated: {type(error).__name__}: {error}")

    async def _until_accepted(self) -> None:
        while not self._chief.record.accepted:
            await asyncio.sleep(SAMPLE_SECONDS / 10)

    def _earlier(self) -> History | None:
        """What the chief before this one has kept; the time since counts if that one was lost. None if it kept none."""
        try:
            found = history.load(self._spec.directory)
        except ValueError as error:
            log_line(f"{layout.history(self._spec.directory)}: {error}; a new one begins")
            return None
        if found and self._chief.record.continues and found.job.time:
            found.wall += max(0.0, time.time() - found.job.time[-1])
        return found

    async def close(self) -> None:
        """Ends all readers. The last point of the job was sampled, or is now."""
        if not self._over and self._chief.record.accepted:
            await self._end()
        for queue in self._readers:
            _put(queue, "")

    async def _sample(self, now: float) -> None:
        rendezvous, child = self._chief.rendezvous, self._agent.running
        figures = child.status.document() if child else {}
        rows = rows_of(rendezvous, child.status.workers if child else {})
        self._look_at_pace(now)
        self._logs.tick()
        job = self._sampler.job_point(rendezvous, figures, rows)
        tasks: Point = {}
        if self._rows_are_due(now, len(rows)):
            tasks = tasks_point(rows, self._chief.stragglers.shares, used_of(rendezvous))
        if self._history.job.due(now):
            self._history.job.add(now, job)
        if tasks and self._history.tasks.due(now):
            self._history.tasks.add(now, tasks)
        marks = self._sampler.marks(now, rendezvous, rows)
        for mark in [*marks, *await self._checkpoints(now)]:
            self._mark(mark)
        if self._readers:
            self._send(now, job, tasks)
        if now >= self._save_at:
            await self._save(live=True)

    def _rows_are_due(self, now: float, tasks: int) -> bool:
        wanted = self._history.tasks.due(now) or (bool(self._readers) and now >= self._send_rows_at)
        if wanted:
            self._send_rows_at = now + tasks / TASKS_A_SECOND
        return wanted

    def _look_at_pace(self, now: float) -> None:
        child, rendezvous = self._agent.running, self._chief.rendezvous
        running = rendezvous.phase == "running" and child is not None
        status = child.status if child else None
        self._pace.look(
            now,
            rendezvous.generation if running else 0,
            status.step if status and running else None,
            pausing=bool(status and (status.evaluating or status.finishing)),
            saving=(status.seconds_saving if status else None) or 0.0,
        )

    async def _checkpoints(self, now: float) -> list[Mark]:
        child = self._agent.running
        found = self._sampler.new_checkpoint(child.status) if child else None
        if found is None:
            return []
        step, seconds = found
        written = await asyncio.to_thread(checkpoint.written, self._spec.directory, step)
        when, size = written or (now, None)
        text = f"checkpoint of step {step}"
        generation = self._chief.rendezvous.generation
        return [Mark(when, "checkpoint", text, None, generation, step, bytes=size, seconds=seconds)]

    def _mark(self, mark: Mark) -> None:
        self._history.mark(mark)
        if mark.kind not in ("checkpoint", "score"):  # what ends a chief comes soon after what it does not know yet
            self._save_at = self._may_save_at
        self._emit("mark", json_text(mark.document()))

    async def _end(self) -> None:
        """The last point and mark, and the file as it stays."""
        self._over = True
        rendezvous, now = self._chief.rendezvous, time.time()
        if rendezvous.code is Exit.REPLACED:  # another chief continues it
            return
        self._look_at_pace(now)
        for mark in self._sampler.marks(now, rendezvous, {}):
            self._mark(mark)
        kind = "stopped" if rendezvous.code is Exit.STOPPED else "ended"
        text = rendezvous.message or "the job is done"
        self._mark(Mark(now, kind, text, None, rendezvous.generation, rendezvous.watch.step))
        self._emit("status", json_text(self._chief.status().document()))
        await self._save(live=False)

    # Readers and the file. ----------------------------------------------------------------------------

    def _send(self, now: float, job: Point, tasks: Point) -> None:
        known = {"eta": self._seconds_left(), "goodput": self._history.goodput}
        self._emit("points", json_text({"time": now, "job": _nested(job), "tasks": _nested(tasks), **known}))
        if tasks:
            status = json_text(self._chief.status().document())
            if status != self._sent_status:
                self._sent_status = status
                self._emit("status", status)

    def _emit(self, name: str, text: str) -> None:
        for queue in self._readers:
            _put(queue, f"event: {name}\ndata: {text}\n\n")

    async def _save(self, *, live: bool) -> None:
        begun, view = time.monotonic(), self._view(live=live)
        saving = asyncio.create_task(asyncio.to_thread(self._write, view, self._history.copy()))
        await asyncio.wait({saving}, timeout=None if live else LAST_SECONDS)
        spent, now = time.monotonic() - begun, time.time()
        self._may_save_at = now + SAVE_SHARE * spent
        self._save_at = max(self._may_save_at, now + SAVE_SECONDS)

    def _write(self, view: View, found: History) -> None:
        with contextlib.suppress(TrainerError):  # it is tried again
            self._chief.record.require_lease()
            history.save(self._spec.directory, document.pieces(view, found))


def _put(queue: asyncio.Queue[str], event: str) -> None:
    """Ends a reader that does not keep up: its browser asks for the whole document again."""
    try:
        queue.put_nowait(event)
    except asyncio.QueueFull:
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait("")


def _nested(point: Point) -> Mapping[str, object]:
    found: dict[str, object] = {}
    inner: dict[str, Point] = {}
    for (name, *rest), value in point.items():
        if rest:
            inner.setdefault(name, {})[tuple(rest)] = value
        else:
            found[name] = value
    return {**found, **{name: _nested(own) for name, own in inner.items()}}
