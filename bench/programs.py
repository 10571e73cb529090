"""What its supervisor costs a program: in throughput, and until its first step.

    python -m bench.programs [--windows N] [--starts N]

Two workers under MultiWorkerMirroredStrategy train a small CNN with a loop of their own, without reports and with one
for each step. All supervisors and the launcher are stopped by SIGSTOP in every second window of time: neighbours differ
in nothing else. Then a program that imports nothing is started: by hand, by a task, and by a job of one task.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from bench.costs import cpu_seconds
from tests.tools.harness import TRAINER
from trainer.job import environment
from trainer.job.cluster import tasks_of
from trainer.job.load import load_file
from trainer.targets.local import ports
from trainer.targets.local.run import TASK_COMMAND

WORKERS, BATCH = 2, 64
SETTLE_SECONDS, WINDOW_SECONDS = 0.3, 2.5
"""A task is lost after 10 s of silence (deadlines.task_lost)."""
STEPS_A_LINE = 25
FIRST = "import os, time; print('FIRST', time.time() - float(os.environ['BEGUN']), flush=True)"


def train() -> None:
    """The program. It writes the time of every STEPS_A_LINE steps, and does not end."""
    import tensorflow as tf

    import trainer

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        layers = tf.keras.layers
        made = [layers.InputLayer((28, 28, 1)), layers.Conv2D(16, 3, activation="relu"), layers.Flatten()]
        model = tf.keras.Sequential([*made, layers.Dense(10)])
    x = np.random.default_rng(0).normal(size=(BATCH, 28, 28, 1)).astype("float32")
    y = np.arange(BATCH) % 10

    @tf.function
    def step() -> Any:
        def replica_step() -> Any:
            with tf.GradientTape() as tape:
                logits = model(x)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
            gradients = tape.gradient(loss, model.trainable_variables)
            gradients = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.MEAN, gradients)
            for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
                variable.assign_sub(1e-3 * gradient)
            return loss

        return strategy.run(replica_step)

    number = 0
    with Path(os.environ["LINES"]).open("a") as lines:
        while True:
            step()
            number += 1
            if os.environ.get("REPORT"):
                trainer.report(step=number)
            if number % STEPS_A_LINE == 0 and '"index": 0' in os.environ["TF_CONFIG"]:
                print(time.time(), file=lines, flush=True)


def rates(folder: Path, windows: int, report: str) -> tuple[list[float], list[float], float]:
    """Steps per second of windows in which the supervisors run, and of those in which they are stopped; and the cores
    that supervisors and launcher use while they run."""
    lines = folder / f"lines{report}"
    environ = {"LINES": str(lines), "REPORT": report}
    words = [sys.executable, str(Path(__file__).absolute()), "train"]
    command = _job(folder, f"rates{report}", words, WORKERS, environ)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
        while not lines.exists() or not lines.read_text():
            time.sleep(0.1)
        found = subprocess.run(["pgrep", "-P", str(job.pid)], capture_output=True, text=True, check=True)
        ours = [job.pid, *map(int, found.stdout.split())]
        times: list[tuple[bool, float]] = []
        used = 0.0
        for window in range(windows):
            for runs in (True, False) if window % 2 else (False, True):
                for pid in ours:
                    os.kill(pid, signal.SIGCONT if runs else signal.SIGSTOP)
                time.sleep(SETTLE_SECONDS)
                times.append((runs, time.time()))
                before = sum(map(cpu_seconds, ours))
                time.sleep(WINDOW_SECONDS)
                used += sum(map(cpu_seconds, ours)) - before
        for pid in ours:
            os.kill(pid, signal.SIGCONT)
        job.terminate()
    done = [float(line) for line in lines.read_text().splitlines()]
    found_rates: dict[bool, list[float]] = {True: [], False: []}
    for runs, begun in times:
        own = [each for each in done if begun <= each <= begun + WINDOW_SECONDS]
        found_rates[runs].append(STEPS_A_LINE * (len(own) - 1) / (own[-1] - own[0]))
    return found_rates[True], found_rates[False], used / (windows * WINDOW_SECONDS)


def first_step(folder: Path, number: int) -> list[float]:
    """Seconds from the command to the first line of a program: by hand, in a task as a container runs it, and in a job
    on this machine, which has a launcher too."""
    program, seconds = [sys.executable, "-c", FIRST], []
    job = _job(folder, f"first{number}", program, 1, {})
    spec = load_file(folder / f"first{number}.yaml").model_copy(update={"model_dir": str(folder / f"task{number}")})
    with ports.reserve(["worker:0"]) as taken:
        (alone,) = tasks_of(spec, lambda *_: f"127.0.0.1:{taken['worker:0']}")
        task = {"TF_CONFIG": alone.tf_config(), environment.JOB: spec.model_dump_json(exclude_defaults=True)}
        for command, more in ((program, {}), (TASK_COMMAND, task), (job, {})):
            environ = {**os.environ, **more, "BEGUN": str(time.time())}
            output = subprocess.run(command, env=environ, capture_output=True, text=True, check=True).stdout
            seconds.append(float(output.partition("FIRST ")[2].split()[0]))
    return seconds


def _job(folder: Path, name: str, words: list[str], workers: int, environ: dict[str, str]) -> list[str]:
    """The command that runs a job of this program."""
    job = {"name": name, "strategy": "multi_worker_mirrored", "tasks": {"worker": workers}, "code": [], "env": environ}
    spec = folder / f"{name}.yaml"
    spec.write_text(yaml.safe_dump({**job, "program": words, "model_dir": str(folder / name)}))
    return [*TRAINER, "local", str(spec), "--plain"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.programs", description="see bench/programs.py")
    parser.add_argument("--windows", type=int, default=16, help="pairs of windows (16)")
    parser.add_argument("--starts", type=int, default=7, help="of each kind (7)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for report, title in (("", "without reports"), ("1", "a report for each step")):
            run, stopped, cores = rates(folder, arguments.windows, report)
            ratio = statistics.median(one / other for one, other in zip(run, stopped, strict=True))
            medians = f"{statistics.median(run):.1f} steps/s, {statistics.median(stopped):.1f} with supervisors stopped"
            pairs = f"median ratio of {arguments.windows} pairs {ratio:.3f}"
            print(f"{title}: {medians}; {pairs}; supervisors and launcher {cores:.2%} of a core", flush=True)
        starts = [first_step(folder, number) for number in range(arguments.starts)]
        for way, title in ((1, "a task"), (2, "a job on one machine")):
            later = sorted(each[way] - each[0] for each in starts)
            print(f"first step of {title}: {statistics.median(later):.2f} s later ({later[0]:.2f} to {later[-1]:.2f})")


if __name__ == "__main__":
    if sys.argv[1:] == ["train"]:
        train()
    else:
        main()
