"""Stand-ins for the tasks of a local job, and what they need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from trainer.job import environment
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.model_dir import result
from trainer.model_dir.result import Result, Training

# A stand-in runs the code that its first argument, an object in JSON, holds for its name; without any it succeeds.
STAND_IN = """
import json, os, signal, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
name = f"{task['type']}:{task['index']}"
def say(text): print(text, flush=True)
def report(text): print(os.environ["TRAINER_FAILURE_MARK"] + "trainer: " + text, file=sys.stderr, flush=True)
def once(what):  # whether it is the first time, over all processes
    try: os.mkdir(what)
    except FileExistsError: return False
    return True
def die(): os.kill(os.getpid(), signal.SIGKILL)
def leave_at_sigterm(code):  # leave with this code at SIGTERM
    signal.signal(signal.SIGTERM, lambda *_: (say("SIGTERM seen"), os._exit(code)))
def forever():
    while True: signal.pause()
exec(json.loads(sys.argv[1]).get(name, ""))
"""


def stand_in(**tasks: str) -> list[str]:
    """A task command; `worker_1="die()"` is what worker:1 does."""
    return [sys.executable, "-S", "-c", STAND_IN, json.dumps({k.replace("_", ":"): v for k, v in tasks.items()})]


def make(**more: Any) -> JobSpec:
    tasks = {"ps": 1, "worker": 2, **more.pop("tasks", {})}
    return build({"name": "j", "strategy": "parameter_server", "workload": "digits", "tasks": tasks, **more})


def fifo(name: str) -> None:
    """For one process to wait for another: `open(name).read()` and `open(name, "w")` meet."""
    os.mkfifo(name)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def write_result(*warnings: str) -> None:
    """As the chief leaves it."""
    Path("runs/j").mkdir(parents=True)
    training = Training(1000, {"accuracy": 0.9712}, None, None, {}, None, None)
    result.write("runs/j", Result("j", "one_device", training, 3.5, 1, [*warnings], {}, [], {}, {}, {}))


RUN = """
import sys
from trainer.targets.local import run as local
from trainer.job.load import load_environment
sys.exit(local.run(load_environment(), command=sys.argv[1:]))
"""


def start(spec: JobSpec, command: list[str], **more: Any) -> subprocess.Popen[str]:
    """A local job in a process of its own."""
    environ = {**os.environ, environment.JOB: spec.model_dump_json(exclude_defaults=True), **more.pop("env", {})}
    return subprocess.Popen([sys.executable, "-c", RUN, *command], env=environ, text=True, **more)
