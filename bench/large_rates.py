"""How fast two workers of one core train large models, and two ps that are the limit.

Parameters of the models: ResNet50 23.6 million; the wide one 236 million, of which a table of rows has 160.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import intervals, marks, namespaces, network, run
from bench.run import Process, Steps
from bench.throughput import IDEAL, MWMS, PEERS_PYTHON, PS, WORKERS, torch_ranks

BATCHES = {"resnet50": 16, "wide": 64}
STEPS = Steps(20, 20)
"""In the first ones the kernel gives the processes memory, which takes longer than what is measured."""
NETWORKS = Path(__file__).parent / "networks"
SETTINGS: dict[str, dict[str, Any]] = {
    "trainer": {},
    "trainer, bfloat16 gradients": {"gradients": "bfloat16"},
    "trainer, weights averaged every 10 steps": {"every": 10},
}
EVEN = str(NETWORKS / "even.py")
PS_BATCH, PS_MBIT, WORKER_MBIT = 16, 100, 1_000
WINDOW = 8.0
"""Seconds that are measured, at least."""

Rates = dict[str, dict[str, list[float]]]
"""Examples per second by network or number of ps, and by contender."""


def contenders(name: str) -> dict[str, Callable[[], float]]:
    batch = BATCHES[name]
    own: dict[str, Any] = {"workload": str(NETWORKS / f"{name}.py"), "train": {"batch_size": batch}}

    def ours(communication: Mapping[str, Any]) -> float:
        return run.ours(MWMS, WORKERS, STEPS, communication=communication, **own)

    def torch(gradients: str) -> float:
        words = [name, *STEPS.words, str(batch), gradients]
        command = [str(PEERS_PYTHON), str(run.PEERS / "torch_large.py"), *words]
        return run.figures([Process(command, environ, i) for i, environ in enumerate(torch_ranks())])

    found: dict[str, Callable[[], float]] = {IDEAL: lambda: run.ours("one_device", 1, STEPS, jobs=WORKERS, **own)}
    found |= {setting: lambda given=given: ours(given) for setting, given in SETTINGS.items()}  # type: ignore[misc]
    if PEERS_PYTHON.exists():
        found["torch DDP"] = lambda: torch("float32")
        if name != "wide":  # its hooks refuse gradients of rows
            found["torch DDP, bfloat16 gradients"] = lambda: torch("bfloat16")
    return found


def measure(turns: int, networks: list[str]) -> Rates:
    found: Rates = {name: {contender: [] for contender in contenders(name)} for name in networks}
    for turn in range(turns):
        for name, rates in found.items():
            for each, contender in contenders(name).items():
                rates[each].append(contender())
                print(f"  {turn + 1}/{turns} {name}, {each}: {rates[each][-1]:.1f} examples/s", flush=True)
    return found


def measure_ps(turns: int) -> dict[str, list[float]]:
    """Examples per second by the number of ps, each on a host with a link of PS_MBIT; those of workers have ten times
    as much."""
    found: dict[str, list[float]] = {"1": [], "2": []}
    for turn in range(turns):
        for count, rates in found.items():
            with namespaces.hosts(WORKERS + int(count)) as hosts:
                hosts.limit(WORKER_MBIT)
                hosts.limit(PS_MBIT, range(WORKERS, WORKERS + int(count)))
                rates.append(_rate(hosts, int(count)))
            print(f"  {turn + 1}/{turns} {count} ps: {rates[-1]:.1f} examples/s", flush=True)
    return found


def _rate(hosts: namespaces.Hosts, count: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        spec = run.spec(PS, WORKERS, Steps(10, 10**6), {"batch_size": PS_BATCH}, model_dir=folder, workload=EVEN)
        spec["tasks"]["ps"]["replicas"] = count
        wanted = network.tasks(hosts, spec, _host)
        with marks.started(wanted, Path(folder)) as found:
            found.next()
            begin = marks.after(found, time.time() + WINDOW / 4)
            end = marks.after(found, begin.time + WINDOW)
        return (end.step - begin.step) * PS_BATCH / (end.time - begin.time)


def _host(task_type: str, index: int) -> int:
    """Workers first; the chief is beside the first ps, and sends little."""
    return index if task_type == "worker" else WORKERS + index


def table(rates: Rates) -> list[str]:
    lines = [
        f"| examples/s, {WORKERS} workers of one core | network | median | of independent processes (95 %) |",
        "|---|---|---|---|",
    ]
    for name, each in rates.items():
        for contender, turns in each.items():
            share = "" if contender == IDEAL else intervals.ratio(turns, each[IDEAL]).text()
            lines.append(f"| {contender} | {name} | {statistics.median(turns):.1f} | {share} |")
    return [*lines, ""]


def ps_text(rates: Mapping[str, list[float]]) -> list[str]:
    more = intervals.ratio(rates["2"], rates["1"]).text()
    limit = f"Four equal layers, ps with links of {PS_MBIT} Mbit/s, which are the limit"
    return [f"{limit}: two ps train {more} times as fast as one."]
