"""3,000 supervisors' reports to one real chief's, which trains, while 1 % of the tasks are lost per minute.

    python -m bench.losses [--tasks N] [--seconds S] [--share S] [--profile FILE] [--write]

The chief is a `trainer task` with its child, of a parameter_server program, whose workers restart alone. All others are
coroutines of this process, with reports as supervisors send them: signed, one after the other on a connection of their
own, with what their children have reported. A lost one closes its connection, or keeps it and sends nothing more, in
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
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bench import run, section
from bench.costs import cpu_seconds, memory
from bench.run import Steps
from bench.supervisors import SECRET, Crowd
from tests.tools.harness import TRAINER
from trainer.job import environment, load
from trainer.job.cluster import tasks_of
from trainer.job.names import CONTROL_PORT_OFFSET, task_name
from trainer.job.spec import Deadlines, JobSpec
from trainer.model_dir import layout
from trainer.targets.local import run as local

SETTLE_SECONDS = 10.0
"""Before the first loss, and before CPU time counts."""
ABSENT_SECONDS = 3.0
"""From the notice of a loss until another process has the task's place."""
NOTICE_SECONDS = 2.0
"""How much longer than deadlines.task_lost it may take until a loss is noticed."""
START_SECONDS = 120.0
PROGRAM = """
import time, trainer
for step in range(1, 10**9):
    trainer.report(step=step, loss=1 / step)
    time.sleep(0.1)
"""
_LOST = re.compile(r"(\w+:\d+) lost \((silent for|[^)]*)")


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


async def measure(tasks: int, seconds: float, share: float, profiler: Sequence[str] = ()) -> Found:
    """
    Args:
        seconds: in which tasks are lost.
        share: of the tasks that is lost per minute.
        profiler: words of Python's, which run the chief's command.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    with tempfile.TemporaryDirectory() as folder:
        job = _job(tasks, folder)
        # All of 127.0.0.0/8 is this machine: an address for each.
        names = [task.name for task in tasks_of(job)]
        listening = socket.create_server(("0.0.0.0", 0), backlog=1024)
        port = listening.getsockname()[1] - CONTROL_PORT_OFFSET
        # One port for all of them, and another for the chief, which listens itself.
        places = {name: f"127.1.{i // 250}.{i % 250 + 1}:{port - (not i)}" for i, name in enumerate(names)}
        chief, *others = tasks_of(job, lambda task_type, index: places[task_name(task_type, index)])
        crowd = Crowd(job, chief, others)
        async with await asyncio.start_server(crowd.answer_healthz, sock=listening):
            process = await asyncio.create_subprocess_exec(
                TRAINER[0],
                *profiler,
                *TRAINER[1:],
                "task",
                env={**local.environment_of(job, chief, {}), environment.SECRET: SECRET.decode()},
                stdout=asyncio.subprocess.PIPE,
            )
            try:
                return await _measure(crowd, process, job, seconds, share)
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


async def _measure(
    crowd: Crowd, process: asyncio.subprocess.Process, job: JobSpec, seconds: float, share: float
) -> Found:
    found = Found()
    reading = asyncio.create_task(_read(process, crowd, found))
    for supervisor in crowd.all.values():
        crowd.begin(supervisor)
    await asyncio.wait_for(crowd.running.wait(), START_SECONDS)
    await asyncio.sleep(SETTLE_SECONDS)
    before = (time.monotonic(), cpu_seconds(process.pid), memory(process.pid)["resident"], crowd.sent)
    first_step = _step(job)
    await _lose_some(crowd, seconds, share)
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
    return int(json.loads(layout.state(job.directory).read_text())["step"])


async def _lose_some(crowd: Crowd, seconds: float, share: float) -> None:
    dice, begun = random.Random(0), time.monotonic()
    interval = 60 / (share * len(crowd.all))
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


def table(figures: dict[str, Any]) -> list[str]:
    """As part of docs/benchmarks.md."""
    found = Found(**figures["found"])
    delays = found.delays or [float("nan")]
    return [
        f"| {figures['tasks']:,} tasks, {figures['share']:.0%} lost per minute, {figures['seconds']:.0f} s | |",
        "|---|---|",
        f"| reports | {found.reports:.0f} per second |",
        f"| the chief's supervisor, CPU | {found.cpu:.1%} of a core |",
        f"| its memory | {found.memory[0]:.0f} MB, at the end {found.memory[1]:.0f} MB |",
        f"| losses | {len(found.delays) + len(found.unnoticed)} |",
        f"| of these not noticed; false ones | {len(found.unnoticed)}; {len(found.false)} |",
        f"| from a loss to the chief's notice | {statistics.median(delays):.1f} s, at most {max(delays):.1f} s |",
        f"| steps that the chief's child made meanwhile | {found.steps:,} |",
    ]


def holds(found: Found, task_lost: float) -> bool:
    """Whether each loss was noticed in time, and nothing else was taken for one."""
    return not found.unnoticed and not found.false and max(found.delays, default=0.0) <= task_lost + NOTICE_SECONDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.losses", description="see bench/losses.py")
    parser.add_argument("--tasks", type=int, default=3000)
    parser.add_argument("--seconds", type=float, default=600.0, help="in which tasks are lost (600)")
    parser.add_argument("--share", type=float, default=0.01, help="of the tasks that is lost per minute (0.01)")
    parser.add_argument("--profile", help="file for cProfile's statistics of the chief's supervisor")
    parser.add_argument("--write", action="store_true", help="keep the results for docs/benchmarks.md")
    arguments = parser.parse_args()
    profiler = ["-m", "cProfile", "-o", arguments.profile] if arguments.profile else []
    given = {"tasks": arguments.tasks, "seconds": arguments.seconds, "share": arguments.share}
    found = asyncio.run(measure(**given, profiler=profiler))
    figures = {**given, "found": vars(found)}
    print("\n".join(table(figures)))
    if arguments.write:
        section.keep("losses", figures)
    return 0 if holds(found, Deadlines().task_lost) else 1


if __name__ == "__main__":
    sys.exit(main())
