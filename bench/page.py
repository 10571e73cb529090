"""What the page of a job, and what its loop measures for it, cost: throughput, CPU time and memory.

    python -m bench.page [--turns N] [--smoke]

Two equal jobs, one of which lacks something, run at the same time on the same cores, so that both have the same
neighbours in each window. Where the processes of one take more, both make fewer steps: the CPU time of a step says more
than the ratio of their rates does. The page has a reader, as a browser is one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bench import intervals, run
from bench.costs import cpu_seconds, memory
from bench.run import Steps
from tests.tools.harness import Job
from trainer.model_dir import layout
from trainer.page.routes import KINDS, STATIC

MWMS, PS = "multi_worker_mirrored", "parameter_server"
WORKLOAD = str(run.ROOT / "tests/local/workloads/measured.py")
WINDOW_SECONDS = 5.0
WINDOWS_A_TURN = 4
LOG_STEPS, WARM_UP = 10, 200
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


class Spent(NamedTuple):
    """Seconds of CPU time of a job so far."""

    all: float
    """Of all its processes."""
    supervisor: float
    """Of its chief's supervisor."""


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

    def add(self, before: Spent, after: Spent, rate: float) -> None:
        self.rates.append(rate)
        self.cpu.append((after.all - before.all) / WINDOW_SECONDS / rate)
        self.supervisor.append((after.supervisor - before.supervisor) / WINDOW_SECONDS / rate)


def measure(turns: int, smoke: bool) -> dict[str, Any]:
    names = list(CASES)[:1] if smoke else list(CASES)
    found = {}
    for name in names:
        both = paired(CASES[name], 1 if smoke else WINDOWS_A_TURN * turns)
        found[name] = [vars(each) for each in both]
        print(f"  {table({name: found[name]})[2]}", flush=True)
    return found


def paired(case: Case, windows: int) -> list[Measured]:
    """Measures a job, and one that lacks something."""
    found = [Measured(), Measured()]
    with tempfile.TemporaryDirectory() as name, ExitStack() as held:
        jobs: list[Job] = []
        for kind, without in (("whole", {}), ("lacks", case.without)):
            (folder := Path(name) / kind).mkdir()
            jobs.append(held.enter_context(Job(folder, _spec(case.strategy, without))))
        supervisors = [_supervisor(job) for job in jobs]
        received = held.enter_context(reading(jobs[0])) if case.reader else None
        times, spent = [], []
        for window in range(windows + 1):
            time.sleep(WINDOW_SECONDS if window else 0)
            times.append(time.time())
            spent.append([_spent(*each) for each in zip(jobs, supervisors, strict=True)])
        step = max(job.until_step(WARM_UP)["step"] for job in jobs)
        for job, supervisor, each in zip(jobs, supervisors, found, strict=True):
            job.until_step(step)
            each.memory = memory(supervisor)
        if received is not None and min(received.values()) == 0:
            raise SystemExit(f"the reader of the page received {dict(received)}")
        for which, job in enumerate(jobs):
            rates = _rates(job.model_dir, times)
            for (before, after), rate in zip(pairwise(spent), rates, strict=True):
                found[which].add(before[which], after[which], rate)
    return found


def _spec(strategy: str, without: dict[str, Any]) -> dict[str, Any]:
    train = {"steps": 10**6, "log_steps": LOG_STEPS}
    return run.spec(strategy, 2, Steps(1, 1), train=train, **{"workload": WORKLOAD, **without})


def _supervisor(job: Job) -> int:
    """The process of the chief's supervisor, once the job makes steps."""
    tasks = job.until_step(WARM_UP)["tasks"]
    pid: int = tasks.get("chief:0", tasks["worker:0"])["pid"]
    return pid


def _spent(job: Job, supervisor: int) -> Spent:
    pids = [job.process.pid]  # the launcher, and all that it has started
    everything = 0.0
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended by now: what waited for it has its time
            everything += cpu_seconds(pid, ended=True)
            for thread in Path(f"/proc/{pid}/task").iterdir():
                pids += map(int, (thread / "children").read_text().split())
    return Spent(everything, cpu_seconds(supervisor))


def _rates(model_dir: Path, times: list[float]) -> list[float]:
    """Steps per second from each time to the next, by the lines of the learning curve."""
    lines = [json.loads(line) for line in (model_dir / "metrics.jsonl").read_text().splitlines()]
    steps = np.interp(times, [each["time"] for each in lines], [each["step"] for each in lines])
    return [float(rate) for rate in np.diff(steps) / np.diff(times)]


@contextlib.contextmanager
def reading(job: Job) -> Iterator[Counter[str]]:
    """Reads the page of a job as a browser does whose view of logs is open; counts what it receives, by kind."""
    page = f"http://127.0.0.1:{json.loads(layout.state(job.model_dir).read_text())['control_port']}"
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
        "| of a job with it, to one without | examples/s: median (95 %) | CPU time of a step | "
        "chief's supervisor: CPU time of 1,000 steps | of a core | resident | PSS |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, both in figures.items():
        cells = [
            *(intervals.ratio(*(each[key] for each in both)).text(".3f") for key in ("rates", "cpu")),
            _both(f"{1000 * statistics.mean(each['supervisor']):.2f} s" for each in both),
            _both(f"{_share(each):.2%}" for each in both),
            *(_both(f"{each['memory'][kind]:.1f} MB" for each in both) for kind in ("resident", "proportional")),
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _share(measured: dict[str, list[float]]) -> float:
    """Of a core, that the chief's supervisor takes."""
    return statistics.mean(
        seconds * rate for seconds, rate in zip(measured["supervisor"], measured["rates"], strict=True)
    )


def _both(cells: Iterable[str]) -> str:
    return "{}, without {}".format(*cells)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description="see bench/page.py")
    parser.add_argument("--turns", type=int, default=5, help=f"of {WINDOWS_A_TURN} windows (5)")
    parser.add_argument("--smoke", action="store_true", help="one window of one case, to see that it runs")
    arguments = parser.parse_args()
    print("\n".join(table(measure(arguments.turns, arguments.smoke))))


if __name__ == "__main__":
    main()
