"""`make bench-local`: what the local runtime costs and gains, beside TensorFlow's documented way.

Neighbours in one run are compared: these machines are noisy, and a stored figure compares with nothing.
Writes tests/bench/results/local.json and prints the README's table.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.harness import TRAINER, Job, processes  # noqa: E402
from trainer.deploy import ports  # noqa: E402
from trainer.job import load  # noqa: E402
from trainer.job.tf_config import tasks_of  # noqa: E402

PEER = ROOT / "tests" / "bench" / "peer_tf_keras.py"
RESULTS = ROOT / "tests" / "bench" / "results" / "local.json"
T = TypeVar("T")
TASKS: dict[str, dict[str, Any]] = {
    "multi_worker_mirrored": {"worker": {"replicas": 2, "cpu": 1}},
    "parameter_server": {"ps": {"cpu": 1}, "worker": {"replicas": 2, "cpu": 1}},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="one short repetition, to see that it runs")
    arguments = parser.parse_args()
    repetitions, steps, kills = (1, 20, 1) if arguments.smoke else (3, 60, 5)
    figures = {
        "machine": machine(),
        "throughput": throughput(repetitions, steps),
        "recovery_seconds": {
            "warm standby": recovery(kills, standby=True),
            "without": recovery(kills, standby=False),
        },
        "matpow_speed_up": repeat(repetitions, lambda: matpow(200 if arguments.smoke else 2000)),
        "demo_seconds": repeat(repetitions, demo),
        "help_seconds": repeat(repetitions * 2, lambda: command_seconds("--help")),
        "check_seconds": repeat(repetitions * 2, lambda: command_seconds("check", "k8s/jobs/mnist-ps.yaml")),
    }
    if not arguments.smoke:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(figures, indent=1) + "\n")
    print(table(figures))


def throughput(repetitions: int, steps: int) -> dict[str, list[float]]:
    """Examples per second by contender, taken in turns: A B C D, A B C D, ..."""
    contenders: dict[str, Callable[[], float]] = {
        "MWMS, trainer": lambda: ours("multi_worker_mirrored", steps),
        "MWMS, tf_keras fit": lambda: tf_keras("multi_worker_mirrored", steps, 1),
        "MWMS, tf_keras fit, 10 steps per execution": lambda: tf_keras("multi_worker_mirrored", steps, 10),
        "PS, trainer": lambda: ours("parameter_server", 2 * steps),
        "PS, tf_keras fit": lambda: tf_keras("parameter_server", 2 * steps, 1),
        "PS, tf_keras fit, 10 steps per execution": lambda: tf_keras("parameter_server", 2 * steps, 10),
    }
    rates: dict[str, list[float]] = {name: [] for name in contenders}
    for repetition in range(repetitions):
        for name, run in contenders.items():
            rates[name].append(run())
            print(f"  {repetition + 1}/{repetitions} {name}: {rates[name][-1]:.0f} examples/s", flush=True)
    return rates


def spec(strategy: str, **train: Any) -> dict[str, Any]:
    return {
        "name": "bench",
        "strategy": strategy,
        "workload": "mnist",
        "tasks": TASKS[strategy],
        "train": {"batch_size": 64, "learning_rate": 1e-4, "checkpoint_steps": 100_000, **train},
        "warm_standby": False,
    }


def ours(strategy: str, steps: int) -> float:
    with tempfile.TemporaryDirectory() as folder, Job(Path(folder), spec(strategy, steps=steps)) as job:
        if job.wait(600) != 0:
            raise SystemExit(job.output)
        return float(job.result()["examples_per_second"])


def tf_keras(strategy: str, steps: int, per_execution: int) -> float:
    job = load.build(spec(strategy))
    with ports.reserve([task.name for task in tasks_of(job)], None) as taken:
        tasks = tasks_of(job, lambda task_type, index: f"127.0.0.1:{taken[f'{task_type}:{index}']}")
        command = [sys.executable, str(PEER), str(steps), str(per_execution)]
        shared = {**os.environ}
        with processes([(command, {**shared, "TF_CONFIG": task.tf_config()}) for task in tasks]) as running:
            # The chief, or worker 0, is the first.
            output = running[0].communicate(timeout=900)[0]
    figures = [line for line in output.splitlines() if line.startswith("examples_per_second=")]
    if not figures:
        raise SystemExit(output)
    return float(figures[0].partition("=")[2])


def matpow(size: int) -> dict[str, float]:
    """A^10 + B^10 on two servers of one core: how many times as fast as on one, by chain and by squaring."""
    job_file = load.load_file(ROOT / "k8s/jobs/matpow.yaml", [f"settings.size={size}"])
    spec = job_file.model_dump(mode="json", exclude_defaults=True)
    with tempfile.TemporaryDirectory() as folder, Job(Path(folder), spec) as job:
        if job.wait(600) != 0:
            raise SystemExit(job.output)
        return dict(job.result()["result"]["speed_up"])


def recovery(kills: int, *, standby: bool) -> list[float]:
    """Seconds from SIGKILL of one MWMS child to the next generation's first step."""
    seconds = []
    train = {"steps": 1_000_000, "checkpoint_steps": 20, "log_steps": 1}
    mirrored = {**spec("multi_worker_mirrored", **train), "warm_standby": standby}
    with tempfile.TemporaryDirectory() as folder, Job(Path(folder), mirrored) as job:
        for generation in range(1, kills + 1):
            seen = job.until("steady", functools.partial(_steady, standby=standby), timeout=120)
            job.until("a new checkpoint", functools.partial(_saved_after, step=seen["step"]), timeout=120)
            pid, begun = job.pid("worker:1"), time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            _wait_for_a_step(job, f"generation {generation + 1} formed")
            seconds.append(time.perf_counter() - begun)
            print(f"  recovery {'with' if standby else 'without'} standby: {seconds[-1]:.2f} s", flush=True)
    return seconds


def _steady(status: dict[str, Any], *, standby: bool) -> bool:
    return bool(status.get("step")) and all(task["standby"] == standby for task in status["tasks"].values())


def _saved_after(status: dict[str, Any], *, step: int) -> bool:
    return (status["last_checkpoint"] or 0) > step


def _wait_for_a_step(job: Job, after: str) -> None:
    """Until a step's line follows that one. Asking for /status would take a tenth of a core from who is measured."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        formed = [i for i, line in enumerate(job.lines) if after in line]
        if formed and any("| step " in line for line in job.lines[formed[0] :]):
            return
        time.sleep(0.01)
    raise SystemExit(f"no step after: {after}\n{job.output}")


def demo() -> tuple[float, float]:
    """Seconds from the command to the first step, and from result.json to the end of the last task."""
    spec = load.load_file(ROOT / "k8s/jobs/digits-ps.yaml").model_dump(mode="json", exclude_defaults=True)
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        with Job(Path(folder), spec) as job:
            job.until_step(1)
            first_step = time.perf_counter() - begun
            if job.wait() != 0:
                raise SystemExit(job.output)
            return first_step, time.time() - (job.model_dir / "result.json").stat().st_mtime


def command_seconds(*words: str) -> float:
    begun = time.perf_counter()
    subprocess.run([*TRAINER, *words], check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    return time.perf_counter() - begun


def repeat(times: int, measure: Callable[[], T]) -> list[T]:
    return [measure() for _ in range(times)]


def machine() -> dict[str, Any]:
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    name = models[0].partition(":")[2].strip() if models else platform.machine()
    return {
        "cpu": name,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def table(figures: dict[str, Any]) -> str:
    """The README's table: medians, with the spread."""
    rates = figures["throughput"]
    lines = [
        f"{figures['machine']['cpu']}, {figures['machine']['cores']} cores, {figures['machine']['date']}",
        "",
        "| examples/s, 2 workers of one core, CNN, batch 64 each | median | min to max | trainer is |",
        "|---|---|---|---|",
    ]
    for name, values in rates.items():
        own = rates[f"{name.partition(',')[0]}, trainer"]
        ratio = statistics.median(a / b for a, b in zip(own, values, strict=True))
        times = "" if values is own else f"{ratio:.2f} times as fast"
        lines.append(f"| {name} | {statistics.median(values):.0f} | {min(values):.0f} to {max(values):.0f} | {times} |")
    lines += ["", "| A^10 + B^10, 2,000 rows, two tasks of one core | median | min to max |", "|---|---|---|"]
    for name in ("chain", "squaring"):
        ups = [each[name] for each in figures["matpow_speed_up"]]
        spread = f"{min(ups):.2f} to {max(ups):.2f}"
        lines.append(f"| by {name}, of the speed of one task | {statistics.median(ups):.2f} | {spread} |")
    lines += ["", "| seconds | median | min to max |", "|---|---|---|"]
    rows = {
        "SIGKILL of an MWMS task's child to the next step, warm standby": figures["recovery_seconds"]["warm standby"],
        "the same without": figures["recovery_seconds"]["without"],
        "`trainer local` of the demo to its first step": [first for first, _ in figures["demo_seconds"]],
        "`result.json` written to the last task's exit": [end for _, end in figures["demo_seconds"]],
        "`trainer --help`": figures["help_seconds"],
        "`trainer check`": figures["check_seconds"],
    }
    for name, values in rows.items():
        lines.append(f"| {name} | {statistics.median(values):.2f} | {min(values):.2f} to {max(values):.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
