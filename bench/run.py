"""Starts, pins, watches and ends the measured processes; describes the machine."""

from __future__ import annotations

import itertools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from tests.tools.harness import TRAINER, processes
from trainer.job import load
from trainer.job.cluster import Task, tasks_of
from trainer.job.spec import JobSpec
from trainer.targets.local import ports
from trainer.targets.local import run as local

# Some machines set it: each process that is measured would compile trainer anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

ROOT = Path(__file__).parents[1]
PEERS = Path(__file__).parent / "peers"
RESULTS = Path(__file__).parent / "results"
SECONDS = 300.0
BATCH = 64
BFLOAT16 = ("avx512_bf16", "amx_bf16")
INSTRUCTIONS = ("avx2", "avx512f", *BFLOAT16)
"""Of x86; they decide how fast oneDNN computes, and whether TensorFlow uses it without being asked."""
AVX2 = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}
"""The environment in which oneDNN, torch and MKL compute as on a CPU without AVX-512."""


class Steps(NamedTuple):
    """How long a contender runs; only the second part is measured."""

    warm_up: int
    measured: int

    def times(self, factor: int) -> Steps:
        return Steps(self.warm_up * factor, self.measured * factor)

    @property
    def words(self) -> list[str]:
        return [str(self.warm_up), str(self.measured)]


class Process(NamedTuple):
    command: list[str]
    environ: dict[str, str]
    core: int | None = None
    """The one it may use, as a container limited to one CPU; None: all of them."""


@contextmanager
def started(wanted: Sequence[Process]) -> Iterator[list[subprocess.Popen[str]]]:
    """All of them at once; killed when the context is left."""
    cores = sorted(os.sched_getaffinity(0))
    pinned = [
        ([*(["taskset", "-c", str(cores[p.core % len(cores)])] if p.core is not None else []), *p.command],
         {**os.environ, **p.environ})
        for p in wanted
    ]  # fmt: skip
    with processes(pinned) as running:
        yield running


def figures(wanted: Sequence[Process]) -> float:
    """What the first of them prints as examples_per_second."""
    with started(wanted) as running:
        try:
            output = running[0].communicate(timeout=SECONDS)[0]
        except subprocess.TimeoutExpired:
            running[0].kill()
            output = f"{wanted[0].command} took more than {SECONDS:g} s:\n{running[0].communicate()[0]}"
    lines = [line for line in output.splitlines() if line.startswith("examples_per_second=")]
    if not lines:
        raise SystemExit(output)
    return float(lines[0].partition("=")[2])


def spec(
    strategy: str, workers: int, steps: Steps, train: Mapping[str, Any] | None = None, **more: Any
) -> dict[str, Any]:
    """MNIST's CNN, 64 examples per replica; a line, and so a figure, after the warm-up and at the end.

    Args:
        train: keys of it that differ.
        more: keys of the spec in place of these.
    """
    tasks: dict[str, Any] = {"worker": {"replicas": workers, "cpu": 1}}
    how = {
        "batch_size": BATCH,
        "steps": sum(steps),
        "log_steps": steps.warm_up,
        "checkpoint_steps": 10**6,
        "learning_rate": 1e-4,
        **(train or {}),
    }
    if strategy == "parameter_server":
        tasks["ps"] = {"cpu": 1}
    return {
        "name": "bench", "strategy": strategy, "workload": "mnist", "tasks": tasks, "train": how,
        "warm_standby": False, **more,
    }  # fmt: skip


@contextmanager
def cluster(job: JobSpec) -> Iterator[list[tuple[Task, dict[str, str]]]]:
    """A job's tasks on free ports of this machine, the leader first, with their environments."""
    with ports.reserve([task.name for task in tasks_of(job)], None) as taken:
        tasks = tasks_of(job, lambda task_type, index: f"127.0.0.1:{taken[f'{task_type}:{index}']}")
        tasks.sort(key=lambda task: not task.is_chief)
        yield [(task, local.environment_of(job, task, taken)) for task in tasks]


def ours(
    strategy: str,
    workers: int,
    steps: Steps,
    jobs: int = 1,
    seen: Callable[[Path], Any] | None = None,
    environ: Mapping[str, str] | None = None,
    **more: Any,
) -> float:
    """Examples per second of `trainer task` processes, worker i on core i; of several jobs at once, together.

    Args:
        seen: called with model_dir at each figure of a job, as soon as it is written.
        environ: more of it for all tasks.
        more: keys of the spec.
    """
    with tempfile.TemporaryDirectory() as folder, ExitStack() as held:
        folders = [Path(folder) / str(i) for i in range(jobs)]
        wanted: list[list[Process]] = []
        for i, model_dir in enumerate(folders):
            job = load.build({**spec(strategy, workers, steps, **more), "model_dir": str(model_dir)})
            tasks = held.enter_context(cluster(job))
            wanted.append(
                [Process([*TRAINER, "task"], {**own, **(environ or {})}, _core(task, i)) for task, own in tasks]
            )
        with started([process for each in wanted for process in each]) as running:
            return sum(_rate(_records(model_dir, sum(steps), running[0], seen)) for model_dir in folders)


def _core(task: Task, job: int) -> int | None:
    return task.index + job if task.type == "worker" else None


def _records(
    model_dir: Path, last: int, leader: subprocess.Popen[str], seen: Callable[[Path], Any] | None
) -> list[dict[str, Any]]:
    """The learning curve, as soon as it is complete, without waiting for the final evaluation and the export."""
    path, deadline, known = model_dir / "metrics.jsonl", time.monotonic() + SECONDS, 0
    while time.monotonic() < deadline and leader.poll() is None:
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        records = [json.loads(line) for line in lines if line.endswith("\n")]
        if seen and len(records) > known:
            seen(model_dir)
            known = len(records)
        if records and records[-1]["step"] == last:
            return records
        time.sleep(0.05)
    how = f"was not reached within {SECONDS:g} s" if leader.poll() is None else "is missing: the job has ended before"
    leader.kill()
    assert leader.stdout is not None
    raise SystemExit(f"step {last} {how}:\n{leader.stdout.read()}")


def _rate(records: list[dict[str, Any]]) -> float:
    """Of the windows after the warm-up."""
    steps, seconds = 0, 0.0
    for before, record in itertools.pairwise(records):
        steps += record["step"] - before["step"]
        seconds += (record["step"] - before["step"]) / record["examples_per_second"]
    return steps / seconds


def peer(name: str, strategy: str, workers: int, steps: Steps, *words: str, chief: bool = True) -> float:
    """Examples per second of a TensorFlow peer as the tasks of such a job, worker i on core i.

    Args:
        chief: whether it knows of a task that coordinates the others; where it does not, worker 0 leads.
    """
    job = load.build(spec(strategy, workers, steps))
    command = [sys.executable, str(PEERS / f"{name}.py"), *steps.words, *words]
    with cluster(job) as tasks:
        known = [replace(task, cluster=_without_chief(task.cluster)) for task, _ in tasks if task.type != "chief"]
        known = [task for task, _ in tasks] if chief else sorted(known, key=lambda task: task.name != "worker:0")
        # Without AVX-512 TensorFlow does not use oneDNN by default (tsl/util/port.cc).
        own = {"TF_ENABLE_ONEDNN_OPTS": "0"} if limited() else {}
        return figures([Process(command, {"TF_CONFIG": task.tf_config(), **own}, _core(task, 0)) for task in known])


def _without_chief(cluster: Mapping[str, Any]) -> dict[str, Any]:
    return {task_type: addresses for task_type, addresses in cluster.items() if task_type != "chief"}


def limited() -> bool:
    """Whether measured programs compute without AVX-512 on a CPU that has it."""
    return os.environ.items() >= AVX2.items()


def machine() -> dict[str, Any]:
    cpuinfo = [line.partition(":") for line in Path("/proc/cpuinfo").read_text().splitlines()]
    first = {key.strip(): value.strip() for key, _, value in reversed(cpuinfo)}
    cpu, known = first.get("model name", platform.machine()), first.get("flags", "").split()
    if limited():
        cpu, known = f"{cpu} with AVX-512 switched off", [name for name in known if name == "avx2"]
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "instructions": [name for name in INSTRUCTIONS if name in known],
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def results(part: str, on: Mapping[str, Any]) -> Path:
    """The file of a part's results on machines of this kind."""
    return RESULTS / f"{part}-{['other', *on['instructions']][-1]}.json"


def spread(values: Sequence[float], digits: int = 0) -> str:
    """A row's two cells: median, and from the smallest to the largest."""
    return f"{statistics.median(values):.{digits}f} | {min(values):.{digits}f} to {max(values):.{digits}f}"
