"""3,000 supervisors' reports to one real chief's, which trains, while 1 % of the tasks are lost per minute.

    python -m tests.bench.losses [--tasks N] [--seconds S] [--profile FILE]

The chief is a `trainer task` with its child, of a parameter_server program, whose workers restart alone. All others are
coroutines of this process, with reports as supervisors send them: signed, one after the other on a connection of their
own, with what their children have reported. A lost one closes its connection, or keeps it and says nothing more, in
turns. Once the chief has noticed, another process takes its place, as a restarted container does. What it notices is
read from its log, as it writes it: to ask for its status would cost it more than what is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import random
import re
import resource
import statistics
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.bench import run
from tests.bench.costs import cpu_seconds, memory
from tests.bench.run import Steps
from tests.harness import TRAINER
from trainer.job import environment, load
from trainer.job.cluster import Task, tasks_of
from trainer.job.names import task_name
from trainer.job.spec import JobSpec
from trainer.protocol import reports
from trainer.protocol.reports import Reply, Report, Used
from trainer.protocol.signature import HEADER, sign
from trainer.supervisor import child_environ, interpreter, preflight
from trainer.targets.local import run as local

SHARE_PER_MINUTE = 0.01
SETTLE_SECONDS = 15.0
"""Before the first loss, and before CPU time counts."""
ABSENT_SECONDS = 3.0
"""From the notice of a loss until another process has the task's place."""
NOTICE_SECONDS = 2.0
"""How much longer than deadlines.task_lost it may take until a loss is noticed."""
START_SECONDS = 120.0
CHIEF_PORT, PORT = 2222, 2223
SECRET = b"0123456789abcdef0123456789abcdef"
PROGRAM = """
import time, trainer
for step in range(1, 10**9):
    trainer.report(step=step, loss=1 / step)
    time.sleep(0.05)
"""
_LOST = re.compile(r"(\w+:\d+) lost \((silent for|[^)]*)")


@dataclass
class Supervisor:
    """Of one task."""

    task: Task
    report: Report
    generation: int = 0
    """Of its child; it starts one as soon as it is told to."""
    step: int = 0
    reporting: asyncio.Task[None] | None = None
    lost_at: float | None = None
    noticed_at: float | None = None
    writer: asyncio.StreamWriter | None = None

    def next_report(self) -> Report:
        self.step += 1
        status: dict[str, object] = {
            "pid": 4711, "child_pid": 4712, "step": self.step, "steps": 10**6, "loss": 1 / self.step,
            "examples_per_second": 1234.5, "steps_made": self.step, "seconds_input": 0.1 * self.step,
            "seconds_compute": 0.8 * self.step, "seconds_exchange": 0.1 * self.step, "seconds_wait": 0.01 * self.step,
        }  # fmt: skip
        used = Used(cpu=0.93, memory=2.1e9, received=6.6e7 + self.step, sent=6.6e7)
        self.report = replace(
            self.report, number=self.report.number + 1, generation=self.generation, status=status, used=used
        )
        return self.report


@dataclass
class Found:
    delays: list[float] = field(default_factory=list)
    """Seconds from each loss until the chief noticed it."""
    false: list[str] = field(default_factory=list)
    """Tasks that the chief took for lost, and were not."""
    unnoticed: list[str] = field(default_factory=list)
    cpu: float = 0.0
    """Of a core, that the chief's supervisor took."""
    memory: tuple[float, float] = (0.0, 0.0)
    """Resident MB at the beginning and at the end."""
    reports: float = 0.0
    """Per second, of all tasks."""
    steps: int = 0
    """That the chief's child made meanwhile."""


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
        known = 0
        while True:
            try:
                reader, writer = await asyncio.open_connection(*self._address)
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


async def measure(count: int, seconds: float, wrap: Callable[[list[str]], list[str]] = list) -> Found:
    """
    Args:
        seconds: in which tasks are lost.
        wrap: what runs the chief's command, as a profiler.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with tempfile.TemporaryDirectory() as folder:
        job = _job(count, folder)
        # All of 127.0.0.0/8 is this machine: an address for each.
        names = [task.name for task in tasks_of(job)]
        ports = {name: CHIEF_PORT if name == "chief:0" else PORT for name in names}
        places = {name: f"127.1.{i // 250}.{i % 250 + 1}:{ports[name]}" for i, name in enumerate(names)}
        chief, *others = tasks_of(job, lambda task_type, index: places[task_name(task_type, index)])
        crowd = Crowd(job, chief, others)
        port = preflight.control_address(others[0])[1]
        async with await asyncio.start_server(crowd.answer_healthz, "0.0.0.0", port, backlog=1024):
            process = await asyncio.create_subprocess_exec(
                *wrap([*TRAINER, "task"]),
                env={**local.environment_of(job, chief, {}), environment.SECRET: SECRET.decode()},
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                return await _measure(crowd, process, job, seconds)
            finally:
                crowd.end()
                process.terminate()
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(process.wait(), 20)
                if process.returncode is None:
                    process.kill()


def _job(count: int, folder: str) -> JobSpec:
    spec = run.spec("parameter_server", count - 2, Steps(1, 1))
    kept = {key: spec[key] for key in ("name", "strategy", "tasks")}
    program = [sys.executable, "-c", PROGRAM]
    kept["tasks"]["chief"] = 1
    return load.build({**kept, "program": program, "model_dir": folder, "deadlines": {"start": START_SECONDS}})


async def _measure(crowd: Crowd, process: asyncio.subprocess.Process, job: JobSpec, seconds: float) -> Found:
    found = Found()
    reading = asyncio.create_task(_read(process, crowd, found))
    for supervisor in crowd.all.values():
        crowd.begin(supervisor)
    await asyncio.wait_for(crowd.running.wait(), START_SECONDS)
    await asyncio.sleep(SETTLE_SECONDS)
    before = (time.monotonic(), cpu_seconds(process.pid), memory(process.pid)["resident"], crowd.sent)
    first_step = _step(job)
    await _lose_some(crowd, seconds)
    spent = time.monotonic() - before[0]
    found.cpu = (cpu_seconds(process.pid) - before[1]) / spent
    found.memory = before[2], memory(process.pid)["resident"]
    found.reports = (crowd.sent - before[3]) / spent
    found.steps = _step(job) - first_step
    await asyncio.sleep(job.deadlines.task_lost + NOTICE_SECONDS)
    found.unnoticed = [name for name, each in crowd.all.items() if each.lost_at and each.noticed_at is None]
    reading.cancel()
    return found


def _step(job: JobSpec) -> int:
    return int(json.loads((Path(job.directory) / "state.json").read_text())["step"])


async def _lose_some(crowd: Crowd, seconds: float) -> None:
    dice, begun = random.Random(0), time.monotonic()
    interval = 60 / (SHARE_PER_MINUTE * len(crowd.all))
    number = 0
    while (passed := time.monotonic() - begun) < seconds:
        await asyncio.sleep(min(max(0.0, (number + 1) * interval - passed), seconds - passed))
        there = [each for each in crowd.all.values() if each.lost_at is None and each.task.type == "worker"]
        crowd.lose(dice.choice([each for each in there if each.generation]), closes=bool(number % 2))
        number += 1


async def _read(process: asyncio.subprocess.Process, crowd: Crowd, found: Found) -> None:
    """Takes the chief's lines, and replaces the tasks that it misses."""
    assert process.stdout is not None
    while line := (await process.stdout.readline()).decode(errors="replace"):
        match = _LOST.search(line)
        if match is None or not match[2].startswith("silent for"):
            if "error" in line or "warning" in line:
                print(f"  {line.rstrip()}", flush=True)
            continue
        supervisor, now = crowd.all.get(match[1]), time.monotonic()
        if supervisor is None or supervisor.lost_at is None:
            found.false.append(match[1])
            continue
        supervisor.noticed_at = now
        found.delays.append(now - supervisor.lost_at)
        asyncio.get_running_loop().call_later(ABSENT_SECONDS, crowd.replace, supervisor)
    raise SystemExit("the chief has ended")


def table(found: Found, count: int, seconds: float) -> list[str]:
    delays = found.delays or [float("nan")]
    return [
        f"{count:,} tasks, {seconds:.0f} s, {found.reports:.0f} reports/s:",
        f"chief's supervisor: {found.cpu:.1%} of a core, {found.memory[0]:.0f} MB, at the end {found.memory[1]:.0f} MB",
        f"losses noticed: {len(found.delays)}, after {statistics.median(delays):.1f} s, at most {max(delays):.1f} s; "
        f"not noticed: {len(found.unnoticed)}; false: {len(found.false)}",
        f"steps meanwhile: {found.steps:,}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.losses", description="see tests/bench/losses.py")
    parser.add_argument("--tasks", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=600.0, help="in which tasks are lost (600)")
    parser.add_argument("--profile", help="file for cProfile's statistics of the chief's supervisor")
    arguments = parser.parse_args()
    wrap: Callable[[list[str]], list[str]] = list
    if arguments.profile:
        profiler = ["-m", "cProfile", "-o", arguments.profile]
        wrap = lambda command: [command[0], *profiler, *command[1:]]  # noqa: E731
    found: Any = asyncio.run(measure(arguments.tasks, arguments.seconds, wrap))
    print("\n".join(table(found, arguments.tasks, arguments.seconds)))


if __name__ == "__main__":
    main()
