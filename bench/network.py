"""`make bench-network`: how fast two workers train, and how soon they are accurate, on networks of three bandwidths.

    python -m bench.network [--turns N] [--smoke] [--examples]

Each worker is on a host of its own (namespaces.py) and on a core of its own; the chief and the ps of parameter_server
are together on a third host. A contender starts once in each turn, and the bandwidth changes while it trains.

How many examples it needs to be accurate depends on what it computes, not on the network or the CPU: --examples
measures that instead, on loopback, into results/examples.json, where they are missing. The seconds to an accuracy
are the quotient of both.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from bench import cost_model, intervals, learning, marks, namespaces, run, section
from bench.namespaces import Hosts
from bench.run import Process, Steps
from bench.throughput import MWMS, PEERS_PYTHON, PS, WORKERS, torch_ranks
from tests.tools.harness import TRAINER
from trainer.job import load
from trainer.job.cluster import tasks_of
from trainer.targets.local import run as local

NEEDED = run.RESULTS / "examples.json"
IDEAL, OURS = "2 independent processes", "trainer"
PLAIN = "TensorFlow's default: plain loop, RING"
ACCURACY, STEPS, SEEDS = 0.98, 480, (1, 2, 3)
PORT, FOR_EVER = 10_000, 10**6
SETTLES, WINDOW = 1.0, 2.5
"""Seconds after a change of bandwidth that are not measured; and at least that are."""

Rates = dict[str, dict[str, list[float]]]
"""Examples per second by contender, Mbit/s and turn."""


class Contender(NamedTuple):
    start: Callable[[Hosts, Path], list[Process]]
    """From hosts and a model_dir to processes, the first of which tells its steps."""
    step_of_accuracy: Callable[[int, int], int | None] | None
    """From a number of steps and a seed to the first of them after which it is accurate; None: it computes what OURS
    does."""
    examples: int = WORKERS * run.BATCH
    """Of a step."""


def contenders() -> dict[str, Contender]:
    found = {
        OURS: _ours(MWMS),
        f"{OURS}, bfloat16 gradients": _ours(MWMS, gradients="bfloat16"),
        f"{OURS}, PowerSGD of rank 4": _ours(MWMS, gradients="powersgd"),
        f"{OURS}, weights averaged every 10 steps": _ours(MWMS, every=10),
        f"{OURS}, weights averaged every 30 steps": _ours(MWMS, every=30),
        f"{OURS}, every 30 steps, as bfloat16": _ours(MWMS, every=30, gradients="bfloat16"),
        f"{OURS}, parameter_server": _ours(PS),
        f"{OURS}, parameter_server, as bfloat16": _ours(PS, gradients="bfloat16", weights="bfloat16"),
        f"{OURS}, parameter_server, every 10 steps": _ours(PS, every=10),
        PLAIN: Contender(_plain, None),
    }
    if PEERS_PYTHON.exists():
        found |= {
            "torch DDP": _torch("float32"),
            "torch DDP, bfloat16 gradients": _torch("bfloat16"),
            "torch DDP, PowerSGD of rank 4": _torch("powersgd"),
            "torch DDP, post-local SGD every 10 steps": _torch("10"),
            "torch DDP, post-local SGD every 30 steps": _torch("30"),
        }
    return found


def _ours(strategy: str, **communication: Any) -> Contender:
    per_step = WORKERS if strategy == MWMS else 1  # batches in a step; under a ps steps are the job's
    log_steps = max(10, communication.get("every", 1))

    def start(hosts: Hosts, folder: Path) -> list[Process]:
        how = Steps(log_steps, FOR_EVER)
        spec = run.spec(strategy, WORKERS, how, communication=communication, model_dir=str(folder))
        return tasks(hosts, spec, lambda task_type, index: index if task_type == "worker" else WORKERS)

    def step_of_accuracy(steps: int, seed: int) -> int | None:
        with learning.trained("cnn", strategy, communication, steps, seed) as made:
            kept = range(learning.KEEP_STEPS, steps + 1, learning.KEEP_STEPS)
            return next((step for step in kept if made.figure(step) >= ACCURACY), None)

    return Contender(start, step_of_accuracy, per_step * run.BATCH)


def tasks(hosts: Hosts, spec: dict[str, Any], host_of: Callable[[str, int], int]) -> list[Process]:
    """A job's tasks, the leader first, each worker on a core of its own.

    Args:
        host_of: the host of a task, by its type and index.
    """
    job = load.build(spec)

    def address(task_type: str, index: int) -> str:
        return f"{hosts.address(host_of(task_type, index))}:{PORT + (task_type == 'ps')}"

    return [
        Process(
            [*hosts.command(host_of(task.type, task.index)), *TRAINER, "task"],
            local.environment_of(job, task, {}),
            task.index if task.type == "worker" else None,
        )
        for task in sorted(tasks_of(job, address), key=lambda task: not task.is_chief)
    ]


def _plain(hosts: Hosts, _: Path) -> list[Process]:
    words = [sys.executable, str(run.PEERS / "plain_loop.py"), "10", "0"]
    cluster = {"worker": [f"{hosts.address(i)}:{PORT}" for i in range(WORKERS)]}
    configs = [json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}}) for i in range(WORKERS)]
    return [Process([*hosts.command(i), *words], {"TF_CONFIG": config}, i) for i, config in enumerate(configs)]


def _torch(gradients: str) -> Contender:
    words = [str(PEERS_PYTHON), str(run.PEERS / "torch_ddp.py")]
    how = ["0", "channels_last", gradients]

    def start(hosts: Hosts, _: Path) -> list[Process]:
        every = gradients if gradients.isdigit() else "10"
        own = torch_ranks(hosts.address(0), PORT, [hosts.device(i) for i in range(WORKERS)])
        return [Process([*hosts.command(i), *words, every, *how], own[i], i) for i in range(WORKERS)]

    def step_of_accuracy(steps: int, _: int) -> int | None:
        command = [*words, str(learning.KEEP_STEPS), *how, str(learning.LEARNING_RATE)]
        processes = [Process(command, environ, i) for i, environ in enumerate(torch_ranks())]
        with tempfile.TemporaryDirectory() as folder, marks.started(processes, Path(folder)) as found:
            mark = found.next()
            while mark.step < steps and (mark.accuracy or 0) < ACCURACY:
                mark = found.next()
        return mark.step if (mark.accuracy or 0) >= ACCURACY else None

    return Contender(start, step_of_accuracy)


def _rates(hosts: Hosts, contender: Contender, window: float) -> dict[str, float]:
    """Examples per second at each bandwidth."""
    measured = {}
    hosts.limit(max(namespaces.BURSTS))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with marks.started(contender.start(hosts, folder), folder) as found:
            found.next()
            for mbit in namespaces.BURSTS:
                hosts.limit(mbit)
                begin = marks.after(found, time.time() + SETTLES)
                end = marks.after(found, begin.time + window)
                measured[str(mbit)] = (end.step - begin.step) * contender.examples / (end.time - begin.time)
    return measured


def measure(turns: int, smoke: bool) -> Rates:
    """Of each contender, in turns."""
    known, bandwidths = contenders(), [str(mbit) for mbit in namespaces.BURSTS]
    found: Rates = {name: {mbit: [] for mbit in bandwidths} for name in (IDEAL, *known)}
    turns, window, steps = (1, 0.0, Steps(10, 10)) if smoke else (turns, WINDOW, Steps(20, 80))
    for turn in range(turns):
        # Outside of the hosts, which cannot fetch a data set.
        ideal = run.ours("one_device", 1, steps, jobs=WORKERS)
        _add(found, IDEAL, dict.fromkeys(bandwidths, ideal))
        with namespaces.hosts(WORKERS + 1) as hosts:
            for mbit in namespaces.BURSTS:
                hosts.limit(mbit)
                print(f"  a connection at {mbit} Mbit/s has {hosts.measured(mbit):.0f}", flush=True)
            for name, contender in known.items():
                _add(found, name, _rates(hosts, contender, window))
        print(f"  turn {turn + 1} of {turns}", flush=True)
    return found


def _add(found: Rates, name: str, rates: dict[str, float]) -> None:
    for mbit, rate in rates.items():
        found[name][mbit].append(rate)
    each = ", ".join(f"{rate:.0f} at {mbit} Mbit/s" for mbit, rate in rates.items())
    print(f"  {name}: examples/s {each}", flush=True)


def measure_examples(smoke: bool) -> None:
    """Examples until a contender is accurate, in several runs, for those that NEEDED lacks; None: more than STEPS."""
    steps, seeds = (learning.KEEP_STEPS, SEEDS[:1]) if smoke else (STEPS, SEEDS)
    found = {} if smoke else _needed()
    for name, contender in contenders().items():
        if contender.step_of_accuracy is None or name in found:
            continue
        made = [contender.step_of_accuracy(steps, seed) for seed in seeds]
        found[name] = [None if step is None else step * WORKERS * run.BATCH for step in made]
        print(f"  {name}: {found[name]} examples to {ACCURACY}", flush=True)
        if not smoke:
            NEEDED.write_text(json.dumps(found, indent=1) + "\n")


def _needed() -> dict[str, list[int | None]]:
    return dict(json.loads(NEEDED.read_text())) if NEEDED.exists() else {}


def figures(rates: Rates) -> dict[str, Any]:
    """The results: rates, and the seconds to ACCURACY by run, at the median rate; None where it was not reached."""
    needed = _needed()

    def seconds(name: str, turns: list[float]) -> list[float | None]:
        rate = statistics.median(turns)
        return [None if each is None else each / rate for each in needed.get(OURS if name == PLAIN else name, [])]

    return {
        name: {
            mbit: {"examples_per_second": turns, "seconds_to_accuracy": seconds(name, turns)}
            for mbit, turns in by_mbit.items()
        }
        for name, by_mbit in rates.items()
    }


def table(figures: dict[str, Any]) -> list[str]:
    bandwidths = [str(mbit) for mbit in namespaces.BURSTS]
    heads = [f"{int(mbit):,} Mbit/s | of independent processes | seconds to {ACCURACY}" for mbit in bandwidths]
    lines = [f"| examples/s, 2 workers of one core, CNN, batch 64 each | {' | '.join(heads)} |"]
    lines.append("|---" * (1 + 3 * len(bandwidths)) + "|")
    for name, by_mbit in figures.items():
        cells = []
        for mbit in bandwidths:
            turns, ideal = (each[mbit]["examples_per_second"] for each in (by_mbit, figures[IDEAL]))
            share = "" if name == IDEAL else intervals.ratio(turns, ideal).text()
            cells += [f"{statistics.median(turns):.0f}", share]
            cells.append(_seconds(by_mbit[mbit]["seconds_to_accuracy"]))
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def _seconds(runs: Iterable[float | None]) -> str:
    """Median and range; of runs that did not get there: that it takes longer."""
    known = sorted(math.inf if each is None else each for each in runs)
    if not known:
        return ""
    middle, last = statistics.median_low(known), known[-1]
    texts = ["longer" if math.isinf(each) else f"{each:.0f}" for each in (middle, known[0], last)]
    return f"{texts[0]} ({texts[1]} to {texts[2]})"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.network", description="see bench/network.py")
    parser.add_argument("--turns", type=int, default=3, help="of each contender (3)")
    parser.add_argument("--smoke", action="store_true", help="everything once, short; writes nothing")
    parser.add_argument(
        "--examples", action="store_true", help="measure the examples to an accuracy instead, where they are missing"
    )
    arguments = parser.parse_args()
    if arguments.examples:
        measure_examples(arguments.smoke)
        rates: Rates = {
            name: {mbit: each["examples_per_second"] for mbit, each in by_mbit.items()}
            for name, by_mbit in section.read("network").items()
        }
    elif (why := namespaces.problem()) is not None:
        sys.exit(f"bench-network: {why}")
    else:
        rates = measure(arguments.turns, arguments.smoke)
    found = figures(rates)
    if not arguments.examples:
        print("\n".join(table(found)))
    if found and not arguments.smoke:
        shows = f"Seconds to an accuracy of {ACCURACY} by the bandwidth of the network"
        section.write("network", found, lambda each: [*table(each), *cost_model.check_table(each)], shows)


if __name__ == "__main__":
    main()
