"""What the page of a job, and what its loop measures for it, cost: throughput, CPU time and memory.

    python -m tests.bench.page [--turns N] [--smoke]

Two equal jobs, one of which lacks something, share the cores in turns of a few seconds: all processes of the other are
stopped by SIGSTOP meanwhile. So neighbours differ in nothing else. The page has a reader as a browser is one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import statistics
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench import run
from tests.bench.costs import cpu_seconds, memory
from tests.bench.run import Steps
from tests.harness import Job
from trainer.page.server import KINDS, STATIC

MWMS, PS = "multi_worker_mirrored", "parameter_server"
WORKLOAD = str(run.ROOT / "tests/local/workloads/measured.py")
SETTLE_SECONDS, WINDOW_SECONDS = 0.3, 2.5
"""A task is lost after 10 s of silence (deadlines.task_lost), in which a stopped chief does not count."""
LOG_STEPS, WARM_UP = 10, 200
PAIRS_A_TURN = 4
POLL_SECONDS, LINES = 2.0, 500
"""As the page's view of logs asks: trainer/page/static/views/logs.js."""


class Case(NamedTuple):
    strategy: str
    without: dict[str, Any]
    """Keys of the spec in the job that lacks it."""
    reader: bool = False


CASES = {
    "the page and a reader, MWMS": Case(MWMS, {"page": "none"}, reader=True),
    "the page and a reader, PS": Case(PS, {"page": "none"}, reader=True),
    "clocks, MWMS": Case(MWMS, {"settings": {"without": "clocks"}}),
    "clocks, PS": Case(PS, {"settings": {"without": "clocks"}}),
    "position of the loop, MWMS": Case(MWMS, {"settings": {"without": "counters"}}),
}


class Window(NamedTuple):
    """A while in which one of the jobs ran."""

    begun: float
    """Seconds since the epoch."""
    cpu: float
    """Seconds of CPU time of all its processes."""
    supervisor: float
    """The same of its chief's supervisor."""


@dataclass
class Measured:
    """One of the two jobs, by window."""

    rates: list[float] = field(default_factory=list)
    """Steps per second."""
    cpu: list[float] = field(default_factory=list)
    """Seconds of CPU time per step."""
    supervisor: list[float] = field(default_factory=list)
    """The same of the chief's supervisor."""
    memory: dict[str, float] = field(default_factory=dict)
    """Of the chief's supervisor at the end, MB."""

    def add(self, window: Window, rate: float) -> None:
        self.rates.append(rate)
        self.cpu.append(window.cpu / WINDOW_SECONDS / rate)
        self.supervisor.append(window.supervisor / WINDOW_SECONDS / rate)


def measure(turns: int, smoke: bool) -> dict[str, Any]:
    names = list(CASES)[:1] if smoke else list(CASES)
    found = {}
    for name in names:
        both = paired(CASES[name], 1 if smoke else PAIRS_A_TURN * turns)
        found[name] = [vars(each) for each in both]
        print(f"  {table({name: found[name]})[2]}", flush=True)
    return found


def paired(case: Case, pairs: int) -> list[Measured]:
    """Measures a job, and one that lacks something."""
    found = [Measured(), Measured()]
    with tempfile.TemporaryDirectory() as name, ExitStack() as held:
        jobs: list[Job] = []
        for kind, without in (("whole", {}), ("lacks", case.without)):
            (folder := Path(name) / kind).mkdir()
            jobs.append(held.enter_context(Job(folder, _spec(case.strategy, without))))
            held.callback(_signal, jobs[-1], signal.SIGCONT)
        for job in jobs:
            job.until_step(WARM_UP)
        received = held.enter_context(reading(jobs[0])) if case.reader else None
        for job in jobs:
            _signal(job, signal.SIGSTOP)
        turns = [which for pair in range(pairs) for which in ((0, 1), (1, 0))[pair % 2]]
        windows = [(which, _window(jobs[which])) for which in turns]
        for job in jobs:
            _signal(job, signal.SIGCONT)
        step = max(job.until_step(WARM_UP)["step"] for job in jobs)
        for job, each in zip(jobs, found, strict=True):
            if job.until_step(step)["generation"] != 1:
                raise SystemExit(f"a job that was stopped for seconds has lost a task:\n{job.output}")
            each.memory = memory(_supervisor(job))
        if received is not None and min(received.values()) == 0:
            raise SystemExit(f"the reader of the page received {dict(received)}")
        for which, window in windows:
            found[which].add(window, _rate(jobs[which].model_dir, window.begun))
    return found


def _spec(strategy: str, without: dict[str, Any]) -> dict[str, Any]:
    train = {"steps": 10**6, "log_steps": LOG_STEPS}
    return run.spec(strategy, 2, Steps(1, 1), train=train, **{"workload": WORKLOAD, **without})


def _window(job: Job) -> Window:
    """Lets a stopped job run for a while."""
    _signal(job, signal.SIGCONT)
    time.sleep(SETTLE_SECONDS)
    supervisor = _supervisor(job)
    begun, before, own = time.time(), _cpu(job), cpu_seconds(supervisor)
    time.sleep(WINDOW_SECONDS)
    found = Window(begun, _cpu(job) - before, cpu_seconds(supervisor) - own)
    _signal(job, signal.SIGSTOP)
    return found


def _cpu(job: Job) -> float:
    """Seconds of CPU time of all its processes, also of those that have ended and that their parents waited for."""
    return sum(cpu_seconds(pid, ended=True) for pid in _pids(job) if Path(f"/proc/{pid}").exists())


def _rate(model_dir: Path, begun: float) -> float:
    """Steps per second in a window, by the lines of the learning curve."""
    lines = [json.loads(line) for line in (model_dir / "metrics.jsonl").read_text().splitlines()]
    own = [(each["step"], each["time"]) for each in lines if begun <= each["time"] <= begun + WINDOW_SECONDS]
    steps, seconds = (last - first for first, last in zip(own[0], own[-1], strict=True))
    return float(steps / seconds)


def _supervisor(job: Job) -> int:
    """The process of the chief's supervisor."""
    tasks = job.status()["tasks"]
    pid: int = tasks.get("chief:0", tasks["worker:0"])["pid"]
    return pid


def _pids(job: Job) -> list[int]:
    """Of the launcher and all that it has started."""
    found = [job.process.pid]
    for pid in found:
        with contextlib.suppress(OSError):  # it has ended by now
            for thread in Path(f"/proc/{pid}/task").iterdir():
                found += map(int, (thread / "children").read_text().split())
    return found


def _signal(job: Job, number: signal.Signals) -> None:
    if not job.over():
        for pid in _pids(job):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


@contextlib.contextmanager
def reading(job: Job) -> Iterator[Counter[str]]:
    """Reads the page of a job as a browser does whose view of logs is open; counts what it receives, by kind."""
    page = f"http://127.0.0.1:{json.loads((job.model_dir / 'state.json').read_text())['control_port']}"
    received, over = Counter({"state": 0, "points": 0, "lines": 0}), threading.Event()

    def get(path: str) -> bytes:
        with urllib.request.urlopen(f"{page}/{path}", timeout=60) as answer:
            body: bytes = answer.read()
            return body

    def listen() -> None:
        files = [file.relative_to(STATIC) for file in STATIC.rglob("*") if file.suffix in KINDS]
        for path in ("", *(f"page/{file}" for file in files)):
            get(path)
        received["state"] += bool(json.loads(get("page/state")))
        with urllib.request.urlopen(f"{page}/page/events", timeout=60) as events:
            for line in events:
                received["points"] += line == b"event: points\n"

    def poll() -> None:
        after = 0
        while not over.wait(POLL_SECONDS):
            lines = json.loads(get(f"page/logs?limit={LINES}&after={after}"))["lines"]
            after = lines[-1]["n"] if lines else after
            received["lines"] += len(lines)

    threads = [threading.Thread(target=each, daemon=True) for each in (listen, poll)]
    for thread in threads:
        thread.start()
    yield received
    over.set()


def table(figures: dict[str, Any]) -> list[str]:
    lines = [
        "| of a job with it, to one without | examples/s: median | min to max | CPU time of a step | "
        "chief's supervisor: CPU time of 1,000 steps | resident | PSS |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, both in figures.items():
        rates, cpu = (
            [one / other for one, other in zip(*(each[key] for each in both), strict=True)] for key in ("rates", "cpu")
        )
        cells = [
            run.spread(rates, 3),
            f"{statistics.median(cpu):.3f}",
            _both(f"{1000 * statistics.mean(each['supervisor']):.2f} s" for each in both),
            *(_both(f"{each['memory'][kind]:.1f} MB" for each in both) for kind in ("resident", "proportional")),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _both(cells: Iterable[str]) -> str:
    return "{}, without {}".format(*cells)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.page", description="see tests/bench/page.py")
    parser.add_argument("--turns", type=int, default=5, help=f"of {PAIRS_A_TURN} pairs of windows (5)")
    parser.add_argument("--smoke", action="store_true", help="one pair of one case, to see that it runs")
    arguments = parser.parse_args()
    print("\n".join(table(measure(arguments.turns, arguments.smoke))))


if __name__ == "__main__":
    main()
