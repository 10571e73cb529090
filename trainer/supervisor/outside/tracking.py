"""`tracking` of the spec: the chief's supervisor keeps one run at MLflow, over all starts of the job.

The training neither waits for the server nor notices it. Curves are read from the files that the job writes anyway, so
a server that is away for hours misses nothing. What it has already is asked of the server at each start, so a step that
is trained again after a loss is not sent again.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from itertools import islice
from uuid import uuid4

from trainer.job.cluster import Task
from trainer.job.errors import Exit, TrainerError
from trainer.job.spec import JobSpec
from trainer.job.tracking import Outcome, Tracking
from trainer.model_dir import layout
from trainer.model_dir.files import read_json, write_json
from trainer.protocol.events import Figures
from trainer.protocol.log_lines import log_line
from trainer.supervisor.children import child_environ
from trainer.supervisor.outside import curves, mlflow, outbound, run_facts
from trainer.supervisor.outside.curves import Record
from trainer.supervisor.outside.mlflow import MLflow, Names, Point, Refused, Run, Unavailable
from trainer.supervisor.outside.webhook import Ending

SEND_SECONDS = 2.0
"""Between two looks for new figures."""
PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds until a server that does not answer is asked again; the last one repeats. After the job's end: the first."""
REPORTS_KEPT = 1000
"""Of a program, which writes no curve: its newest reports, for a server that does not answer."""
ID = "trainer.id"
"""The tag by which a job finds its run again, also if the answer to the request that made it was lost."""
_STATUS: dict[Outcome, mlflow.Status] = {"done": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


class Tracker:
    """Sends a job's figures from its creation on, within a running event loop, until `end` or `drop`."""

    def __init__(
        self, spec: JobSpec, given: Tracking, task: Task, started: float, require_lease: Callable[[], None]
    ) -> None:
        """
        Args:
            started: when the job began, in seconds since the epoch.
            require_lease: raises TrainerError if another chief has taken this one's place.
        """
        self._spec, self._given, self._task, self._started = spec, given, task, started
        self._require_lease = require_lease
        self._address, self._host = given.mlflow.rstrip("/"), outbound.host_of(given.mlflow)
        self._id = ""
        self._curves = curves.of(spec.directory)
        self._reports: deque[Record] = deque(maxlen=REPORTS_KEPT)
        self._names, self._sent = Names(), dict[str, int]()
        self._problem, self._failures = "", 0
        self._shown = self._complained = False
        self._ending: Ending | None = None
        self._ended_at = 0.0
        self._over = asyncio.Event()
        self._running = asyncio.create_task(self._run())

    def report(self, step: int, figures: Figures) -> None:
        """Takes what a program has reported last."""
        found = curves.numbers(figures)
        if found and (not self._reports or self._reports[-1].step != step):
            self._reports.append(Record(step, time.time(), found))

    async def end(self, ending: Ending, seconds: float) -> None:
        """Sends the end of the job, and what is left of its figures, for that many seconds at most."""
        self._ending, self._ended_at = ending, time.time()
        self._over.set()
        done, _ = await asyncio.wait({self._running}, timeout=seconds)
        if not done:
            why = self._problem or f"{self._host} did not take them within {seconds:g} s (deadlines.notify)"
            log_line(f"warning: tracking.mlflow: the run may lack its end, or its last figures: {why}")
        await self.drop()

    async def drop(self) -> None:
        """Sends nothing more."""
        self._running.cancel()
        await asyncio.wait({self._running})

    async def _run(self) -> None:
        environ = child_environ.of_program(self._spec, self._task)
        async with outbound.connect(self._address, environ) as server:
            client = MLflow(server, environ)
            while True:
                try:
                    await self._follow(client)
                    return
                except (Unavailable, Refused) as error:
                    if not self._problem:
                        log_line(f"warning: tracking.mlflow: {error}; training continues, and figures are sent later")
                    self._problem = str(error)
                except TrainerError as error:
                    if error.code is Exit.REPLACED:
                        return
                    self._problem = str(error)  # the disk is full, of which the job complains itself
                self._failures += 1
                await self._pause(PAUSES[min(self._failures, len(PAUSES)) - 1])

    async def _pause(self, seconds: float) -> None:
        """Waits, but not beyond the end of the job."""
        if self._over.is_set():
            await asyncio.sleep(PAUSES[0])
            return
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._over.wait(), seconds)

    async def _follow(self, client: MLflow) -> None:
        """Sends what comes, until the job has ended and all is sent."""
        run = await self._open(client)
        while True:
            ending = self._ending
            if ending is not None:
                await self._close(client, run, ending)
            while points := await asyncio.to_thread(self._collect, list(self._reports), last=ending is not None):
                for first in range(0, len(points), mlflow.BATCH):
                    await self._send(client, run, points[first : first + mlflow.BATCH])
            self._works()
            if ending is not None:
                return
            await self._pause(SEND_SECONDS)

    def _works(self) -> None:
        if self._problem:
            log_line(f"tracking.mlflow: {self._host} answers again")
        self._problem, self._failures = "", 0

    async def _open(self, client: MLflow) -> Run:
        """Finds or makes the run. What was read and not sent is read again: only the server knows what it has got."""
        await asyncio.to_thread(self._identify)
        experiment = await client.experiment(self._given.experiment or self._spec.name)
        run = await client.find(experiment, ID, self._id)
        if run is None:
            run = await client.create(experiment, self._spec.name, self._started, {ID: self._id})
        elif run.status != "RUNNING" and self._ending is None:
            await client.set_status(run, "RUNNING")
        self._curves, self._sent = curves.of(self._spec.directory), dict(run.steps)
        names = Names()
        params = {names.of(name): value for name, value in run_facts.params(self._spec, self._task).items()}
        new = {name: value for name, value in params.items() if name not in run.params}
        changed = [f"{name}: {run.params[name]} -> {params[name]}" for name in params if _differs(run, name, params)]
        tags = await asyncio.to_thread(run_facts.tags, self._spec)
        tags |= run_facts.no_longer_true(run.tags) | ({"trainer.changed": "; ".join(changed)} if changed else {})
        while some := dict(islice(new.items(), mlflow.MOST_PARAMS)):
            await client.log(run, params=some)
            new = {name: value for name, value in new.items() if name not in some}
        await client.log(run, tags=tags)
        if not self._shown:
            log_line(f"tracking.mlflow: {self._address}/#/experiments/{run.experiment_id}/runs/{run.run_id}")
            self._shown = True
        return run

    def _identify(self) -> None:
        """Reads the id of the job's run from model_dir, or makes one before the run is made. A program may have emptied
        model_dir since: then it is written again.

        Raises:
            TrainerError: another chief has taken this one's place, or model_dir cannot be written.
        """
        path = layout.mlflow(self._spec.directory)
        found = read_json(path).get("id")
        if isinstance(found, str) and re.fullmatch(r"[0-9a-f]{32}", found):
            self._id = found
        if self._id and (found == self._id or self._ending):
            return
        self._require_lease()
        self._id = self._id or uuid4().hex
        write_json(path, {"id": self._id})

    def _collect(self, reports: list[Record], *, last: bool) -> list[Point]:
        """New values, some hundreds at once; with `last` the last ones of each curve too."""
        self._identify()
        found: list[Point] = []
        for curve in self._curves:
            for record in curve.read():
                found += self._new(record)
                if len(found) >= mlflow.BATCH:
                    return found
            if last:
                found += [point for record in curve.last() for point in self._new(record)]
        return [*found, *(point for record in reports for point in self._new(record))]

    def _new(self, record: Record) -> list[Point]:
        points = []
        for name, value in record.figures.items():
            fit = self._names.of(name)
            if record.step > self._sent.get(fit, -1):
                self._sent[fit] = record.step
                points.append(Point(fit, value, record.step, record.time))
        return points

    async def _send(self, client: MLflow, run: Run, points: list[Point]) -> None:
        try:
            await client.log(run, points)
        except Refused as error:
            if await client.find(run.experiment_id, ID, self._id) is None:
                raise Unavailable(f"the run {run.run_id} is gone; another one is made") from None
            if not self._complained:
                log_line(f"warning: tracking.mlflow: figures are left out: {error}")
            self._complained = True

    async def _close(self, client: MLflow, run: Run, ending: Ending) -> None:
        """Records the end, before figures that may be too many for the time that is left."""
        figures = {name: value for name, value in curves.numbers(ending.figures).items() if name != "steps"}
        results = self._new(Record(ending.step, self._ended_at, figures)) if ending.outcome == "done" else []
        await client.set_status(run, _STATUS[ending.outcome], self._ended_at)
        await client.log(run, results[: mlflow.BATCH], tags=run_facts.end_tags(ending))


def _differs(run: Run, name: str, params: Mapping[str, str]) -> bool:
    return name in run.params and run.params[name] != params[name][: mlflow.LONGEST_VALUE]
