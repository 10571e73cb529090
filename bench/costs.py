"""Costs of a job besides its steps: starts, recoveries, checkpoints, supervisors, commands, large rendezvous."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from bench import crowd, run
from bench.run import Steps
from tests.tools.harness import TRAINER, Job
from trainer.job import load
from trainer.model_dir import layout

T = TypeVar("T")
FOREVER = {"steps": 10**6, "checkpoint_steps": 20, "log_steps": 1}
DEFAULT_CHECKPOINT_STEPS = 500


def measure(turns: int, smoke: bool) -> dict[str, Any]:
    times, kills = (1, 1) if smoke else (min(turns, 3), min(turns, 3))
    pair = Steps(10, 10) if smoke else Steps(20, 40)
    crowds = (20, 100) if smoke else (1_000, 3_000)  # more addresses do not fit into a TF_CONFIG: rules.py
    first = {how: repeat(times, functools.partial(start_and_end, how)) for how in (("warm",) if smoke else CACHES)}
    return {
        "ideal": repeat(times, lambda: run.ours("one_device", 1, pair, jobs=2)),
        "first_step": {how: [each["phases"] for each in runs] for how, runs in first.items()},
        "end": [each["end"] for runs in first.values() for each in runs],
        "recovery": {name: deaths(*DEATHS[name], kills) for name in (list(DEATHS)[-1:] if smoke else DEATHS)},
        "worker_death": [worker_death()],
        "saving": [saving("multi_worker_mirrored")],
        "saving_ps": [saving("parameter_server")],
        "supervisor": supervisor(seconds=2 if smoke else 10),
        "commands": {name: repeat(2 * times, functools.partial(seconds, *words)) for name, words in COMMANDS.items()},
        "render": {
            f"{command}, {count:,} workers": repeat(times, functools.partial(many, command, count))
            for count in crowds
            for command in ("check", "render kubernetes")
        },
        "rendezvous": {
            f"{count:,} tasks": repeat(times, lambda count=count: asyncio.run(crowd.meet(count)))  # type: ignore[misc]
            for count in crowds[:1]
        },
        "matpow": [matpow(200 if smoke else 2000)],
    }


CACHES = ("cold", "warm")
DEATHS = {
    "an MWMS task's child, warm standby": ("multi_worker_mirrored", "worker:1", True),
    "an MWMS task's child, no standby": ("multi_worker_mirrored", "worker:1", False),
    "a ps": ("parameter_server", "ps:0", True),
}
"""Strategy, task that is killed, and whether there are spare children."""
COMMANDS = {"trainer --help": ("--help",), "trainer check": ("check", "examples/mnist-ps.yaml")}


def table(figures: dict[str, Any]) -> list[str]:
    lines = ["| seconds | median | min to max |", "|---|---|---|"]

    def row(name: str, values: list[float]) -> None:
        lines.append(f"| {name} | {run.spread(values, 2)} |")

    for how, runs in figures["first_step"].items():
        parts = {name: statistics.median(phases[name] for phases in runs) for name in runs[0]}
        reported = ", ".join(f"{name.replace('_', ' ')} {value:.1f}" for name, value in parts.items())
        row(f"`trainer local` to the demo's first step, file cache {how}: {reported}", [sum(p.values()) for p in runs])
    for name, values in figures["recovery"].items():
        row(f"SIGKILL of {name}, to the next step", values)
    row(
        "longest pause of the other ps-workers when one dies, sampled every 0.2 s",
        [each["pause"] for each in figures["worker_death"]],
    )
    row("`result.json` written to the last task's exit", figures["end"])
    for name, values in figures["commands"].items():
        row(f"`{name}`", values)
    for name, values in figures["render"].items():
        row(name, values)
    for name, values in figures["rendezvous"].items():
        row(f"the last of {name} reports, until all have the order to start", values)
    lost = max(each["lost"] for each in figures["worker_death"])
    stops = [
        f"{name} {statistics.median(each['share'] for each in figures[key]):.2%} of its time "
        f"({statistics.median(each['seconds'] for each in figures[key]) * 1000:.0f} ms each)"
        for name, key in (("an MWMS loop", "saving"), ("a PS loop, whose workers end their steps first,", "saving_ps"))
        if key in figures  # of a parameter server: not in results before 2026-11-22
    ]
    one = figures["supervisor"]
    speed_up = {name: statistics.median(each[name] for each in figures["matpow"]) for name in figures["matpow"][0]}
    return [
        *lines,
        "",
        f"Steps that died with a ps-worker and were run again: at most {lost} (10 in a call). "
        f"A checkpoint every {DEFAULT_CHECKPOINT_STEPS} steps stops {', '.join(stops)}. "
        f"A supervisor takes {one['proportional']:.0f} MB (PSS: what processes share is divided among them; resident "
        f"{one['resident']:.0f} MB), "
        f"and {one['cpu']:.2%} of a core while its task trains. "
        "A^10 + B^10 of 2,000 rows on two tasks of one core is "
        f"{speed_up['chain']:.2f} times as fast as on one by chain, {speed_up['squaring']:.2f} times by squaring.",
    ]


def repeat(times: int, measured: Callable[[], T]) -> list[T]:
    return [measured() for _ in range(times)]


def start_and_end(cache: str) -> dict[str, Any]:
    """Seconds from the command to the demo's first step, by phase, and from its result.json to the last task's end."""
    if cache == "cold":
        _forget_files()
    demo = load.load_file(run.ROOT / "examples/digits-ps.yaml", ["train.steps=200"]).model_dump(
        mode="json", exclude_defaults=True
    )
    begun = time.time()
    with tempfile.TemporaryDirectory() as folder, Job(Path(folder), demo) as job:
        if job.wait(300) != 0:
            raise SystemExit(job.output)
        ended, result, written = time.time(), job.result(), layout.result(job.model_dir).stat().st_mtime
        # `seconds` is what the chief had lived when it wrote them.
        phases = {"trainer local": written - result["seconds"] - begun, **result["seconds_by_phase"]}
        return {"phases": phases, "end": ended - written}


def _forget_files() -> None:
    """Drops this Python's and its packages' files from the page cache, as after a boot; needs no root."""
    for folder in {sys.prefix, sys.base_prefix}:
        for path in Path(folder).rglob("*"):
            if path.is_file() and not path.is_symlink():
                descriptor = os.open(path, os.O_RDONLY)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
                os.close(descriptor)


def deaths(strategy: str, victim: str, standby: bool, kills: int) -> list[float]:
    """Seconds from SIGKILL of a task's child to the next generation's first step."""
    found = []
    spec = {**run.spec(strategy, 2, Steps(1, 1)), "train": FOREVER, "warm_standby": standby}
    with tempfile.TemporaryDirectory() as folder, Job(Path(folder), spec) as job:
        for generation in range(1, kills + 1):
            seen = job.until("steady", functools.partial(_steady, standby=standby), timeout=120)
            job.until("a new checkpoint", lambda s, step=seen["step"]: (s["last_checkpoint"] or 0) > step)  # type: ignore[misc]
            pid, begun = job.pid(victim), time.perf_counter()
            os.kill(pid, signal.SIGKILL)
            _wait_for_a_step(job, f"generation {generation + 1} formed")
            found.append(time.perf_counter() - begun)
            print(f"  {victim} killed, {'with' if standby else 'without'} standby: {found[-1]:.2f} s", flush=True)
    return found


def _steady(status: dict[str, Any], *, standby: bool) -> bool:
    imports = [
        t for name, t in status["tasks"].items() if status["strategy"] != "parameter_server" or name == "chief:0"
    ]
    return bool(status.get("step")) and all(task["standby"] == standby for task in imports)


def _wait_for_a_step(job: Job, after: str) -> None:
    """Waits for a step line after that line. Polling /status would take a tenth of a core from the measured tasks."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        formed = [i for i, line in enumerate(job.lines) if after in line]
        if formed and any("| step " in line for line in job.lines[formed[0] :]):
            return
        time.sleep(0.01)
    raise SystemExit(f"no step after: {after}\n{job.output}")


def worker_death() -> dict[str, float]:
    """A ps-worker of two is killed: steps that were lost with it, and the longest pause between steps of the job."""
    spec = {**run.spec("parameter_server", 2, Steps(1, 1)), "train": {"steps": 240, "log_steps": 1}}
    with tempfile.TemporaryDirectory() as folder, Job(Path(folder), spec) as job:
        job.until_step(40)
        job.signal("worker:1")
        last, pause, moved = 40, 0.0, time.perf_counter()
        while last < 200:
            if job.over():
                raise SystemExit(job.output)
            step = job.status().get("step") or 0
            now = time.perf_counter()
            if step > last:
                last, pause, moved = step, max(pause, now - moved), now
            time.sleep(0.05)
        if job.wait(300) != 0:
            raise SystemExit(job.output)
        lost = sum(int(found) for found in re.findall(r"(\d+) steps were lost with their worker", job.output))
        return {"lost": lost, "pause": pause}


def saving(strategy: str) -> dict[str, float]:
    """Seconds that the loop stands still for a checkpoint, and the share of its time at the default interval."""
    spec = run.spec(strategy, 2, Steps(20, 100), train={"checkpoint_steps": 30})
    with tempfile.TemporaryDirectory() as folder, Job(Path(folder), spec) as job:
        if job.wait(300) != 0:
            raise SystemExit(job.output)
        result = job.result()
        per_save = result["seconds_saving"] / 4
        per_step = 128 / result["examples_per_second"]
        return {"seconds": per_save, "share": per_save / (DEFAULT_CHECKPOINT_STEPS * per_step)}


def supervisor(seconds: float) -> dict[str, float]:
    """Resident memory and CPU of a worker's supervisor while its child trains."""
    spec = {**run.spec("multi_worker_mirrored", 2, Steps(1, 1)), "train": {**FOREVER, "log_steps": 100}}
    with tempfile.TemporaryDirectory() as folder, Job(Path(folder), spec) as job:
        job.until_step(5)
        pid = job.pid("worker:1", "pid")
        before, begun = cpu_seconds(pid), time.perf_counter()
        time.sleep(seconds)
        used = (cpu_seconds(pid) - before) / (time.perf_counter() - begun)
        return {**memory(pid), "cpu": used}


def memory(pid: int) -> dict[str, float]:
    """MB of a process, resident and in proportion: what processes share is divided among them."""
    found = dict(re.findall(r"^(Rss|Pss):\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE))
    return {"resident": int(found["Rss"]) / 1024, "proportional": int(found["Pss"]) / 1024}


def cpu_seconds(pid: int, *, ended: bool = False) -> float:
    """Of a process, and of its children that have ended (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11 : 15 if ended else 13])) / os.sysconf("SC_CLK_TCK")


def seconds(*words: str) -> float:
    begun = time.perf_counter()
    subprocess.run([*TRAINER, *words], check=True, stdout=subprocess.DEVNULL, cwd=run.ROOT)
    return time.perf_counter() - begun


def many(command: str, count: int) -> float:
    """Seconds of a command for a job of that many workers."""
    spec = {**run.spec("parameter_server", count, Steps(1, 1)), "image": "example/trainer:1"}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(json.dumps(spec))
        return seconds(*command.split(), str(path))


def matpow(size: int) -> dict[str, float]:
    """A^10 + B^10 on two servers of one core: how many times as fast as on one, by chain and by squaring."""
    job_file = load.load_file(run.ROOT / "examples/matpow.yaml", [f"settings.size={size}"])
    spec = job_file.model_dump(mode="json", exclude_defaults=True)
    with tempfile.TemporaryDirectory() as folder, Job(Path(folder), spec) as job:
        if job.wait(600) != 0:
            raise SystemExit(job.output)
        return dict(job.result()["result"]["speed_up"])
