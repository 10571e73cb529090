"""Supervisors of all tasks but the chief's, as coroutines of one process, with reports as real ones send them."""

from __future__ import annotations

import asyncio
import json
import re
import time
import uuid
from dataclasses import dataclass, replace
from typing import Any

from trainer.job.cluster import Task
from trainer.job.spec import JobSpec
from trainer.protocol import reports
from trainer.protocol.child import ChildStatus
from trainer.protocol.reports import Reply, Report, Used
from trainer.protocol.signature import HEADER, sign
from trainer.supervisor.children import child_environ, interpreter

SECRET = b"0123456789abcdef0123456789abcdef"


@dataclass
class Supervisor:
    """Of one task."""

    task: Task
    report: Report
    generation: int = 0
    """Of its child; it starts one when it is ordered to."""
    step: int = 0
    reporting: asyncio.Task[None] | None = None
    lost_at: float | None = None
    noticed_at: float | None = None
    writer: asyncio.StreamWriter | None = None

    def next_report(self) -> Report:
        self.step += 1
        status = ChildStatus(
            pid=4711, child_pid=4712, step=self.step, steps=10**6, steps_made=self.step,
            seconds_input=0.1 * self.step, seconds_compute=0.8 * self.step, seconds_exchange=0.1 * self.step,
            seconds_wait=0.01 * self.step, figures={"loss": 1 / self.step, "examples_per_second": 1234.5},
        )  # fmt: skip
        used = Used(cpu=0.93, memory=2.1e9, received=6.6e7 + self.step, sent=6.6e7)
        self.report = replace(
            self.report, number=self.report.number + 1, generation=self.generation, status=status, used=used
        )
        return self.report


class Crowd:
    """All supervisors but the chief's."""

    def __init__(self, job: JobSpec, chief: Task, others: list[Task]) -> None:
        self._address = chief.control_address(*chief.chief)
        environ = child_environ.of_program(job, chief)
        versions, _ = interpreter.probe(job, "chief", environ)
        common: dict[str, Any] = {
            "versions": versions,
            "spec": job.digest(),
            "workload": "none",
            "started": time.time(),
        }
        self.all = {
            task.name: Supervisor(task, Report(task.name, uuid.uuid4().hex, task.digest, **common)) for task in others
        }
        self._by_host = {task.control_address(task.type, task.index)[0]: task.name for task in others}
        self._job = job
        self.sent = 0
        self._over = False
        self.running = asyncio.Event()
        """Set once all have the order to start."""

    async def answer_healthz(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One listening socket for the addresses of all tasks."""
        supervisor = self.all[self._by_host[writer.get_extra_info("sockname")[0]]]
        while (await reader.readline()).strip():
            pass
        identity = {"job": self._job.name, "task": supervisor.task.name, "incarnation": supervisor.report.incarnation}
        body = json.dumps(identity).encode()
        writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    def begin(self, supervisor: Supervisor) -> None:
        if self._over:
            return
        supervisor.reporting = asyncio.create_task(self._keep_reporting(supervisor))

    def end(self) -> None:
        self._over = True
        for supervisor in self.all.values():
            if supervisor.reporting is not None:
                supervisor.reporting.cancel()

    async def _keep_reporting(self, supervisor: Supervisor) -> None:
        known, own = 0, supervisor.task.control_address(supervisor.task.type, supervisor.task.index)[0]
        while True:
            try:
                reader, writer = await asyncio.open_connection(*self._address, local_addr=(own, 0))
            except OSError:
                await asyncio.sleep(0.2)
                continue
            supervisor.writer = writer
            while True:
                try:
                    reply = await self._exchange(reader, writer, supervisor.next_report(), known)
                except (OSError, asyncio.IncompleteReadError):
                    break
                known = reply.version
                if reply.phase == "running" and supervisor.generation != reply.generation:
                    supervisor.generation, known = reply.generation, 0
                    if all(each.generation for each in self.all.values()):
                        self.running.set()

    async def _exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, report: Report, known: int
    ) -> Reply:
        body = reports.question(report, known)
        writer.write(
            b"POST /report HTTP/1.1\r\nHost: %s:%d\r\nContent-Type: application/json\r\n%s: %s\r\nAccept: */*\r\n"
            b"Accept-Encoding: gzip, deflate\r\nUser-Agent: Python/3 aiohttp\r\nContent-Length: %d\r\n\r\n%s"
            % (self._address[0].encode(), self._address[1], HEADER.encode(), sign(SECRET, b"report", body).encode(),
               len(body), body)
        )  # fmt: skip
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]
        answer = await reader.readexactly(length)
        self.sent += 1
        if not head.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"{report.task}: {head!r} {answer!r}")
        reply = reports.read_answer(answer)
        if reply.phase in ("done", "failed"):
            raise SystemExit(f"{report.task}: {reply}")
        return reply

    def lose(self, supervisor: Supervisor, *, closes: bool) -> None:
        assert supervisor.reporting is not None
        supervisor.reporting.cancel()
        supervisor.lost_at, supervisor.noticed_at = time.monotonic(), None
        if closes and supervisor.writer is not None:
            supervisor.writer.transport.abort()

    def replace(self, supervisor: Supervisor) -> None:
        """By a process that was started anew."""
        supervisor.report = replace(supervisor.report, incarnation=uuid.uuid4().hex, started=time.time(), number=0)
        supervisor.lost_at, supervisor.generation = None, 0
        if supervisor.writer is not None:
            supervisor.writer.transport.abort()
        self.begin(supervisor)
