"""Random jobs with random faults, judged by `judge.py` from the files that they leave: `make soak`.

TRAINER_SOAK_SEED repeats a run, TRAINER_SOAK_RUNS is the number of jobs (by default 20), TRAINER_SOAK_FIRST the number
of the first. A full disk needs the right to mount a tmpfs; where it is missing, that fault is not drawn. The first line
of a run names the faults it could draw.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.soak import plan
from tests.soak.by_hand import Tasks
from tests.tools.harness import Job
from trainer.job import load
from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit
from trainer.job.names import CONTROL_PORT_OFFSET
from trainer.model_dir import layout
from trainer.targets.local.ports import BLOCK

SEED = int(os.environ.get("TRAINER_SOAK_SEED") or time.time())
RUNS = int(os.environ.get("TRAINER_SOAK_RUNS") or 20)
FIRST = int(os.environ.get("TRAINER_SOAK_FIRST") or 0)
LAUNCHES = 5
DISK = "64m"
DESCRIPTORS = 512
"""Of each process of a job whose control port is flooded."""
JUDGE = Path(__file__).parent / "judge.py"
STRANGER = Path(__file__).parent / "stranger.py"
CLOCK = Path(__file__).parent / "clock"


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("run", range(FIRST, FIRST + RUNS))
def test_a_random_job_under_random_faults(tmp_path: Path, run: int) -> None:
    draw = random.Random(f"{SEED}/{run}")
    trial = plan.trial(draw)
    spec = {**plan.job(draw, trial), "model_dir": str(tmp_path / "disk" / "run")}
    (tmp_path / "lives").mkdir()
    with disk(tmp_path / "disk") as has_disk:
        allowed = tuple(kind for kind in plan.FAULTS if kind != "full disk" or has_disk)
        names = [task.name for task in tasks_of(load.build(spec))]
        chief = next(task.name for task in tasks_of(load.build(spec)) if task.is_chief)
        faults = {
            "faults": lambda: plan.faults(draw, names, allowed, paced="nap" in spec["settings"]),
            "evictions": lambda: plan.evictions(draw, chief),
        }.get(trial, list)()
        print(f"TRAINER_SOAK_SEED={SEED} TRAINER_SOAK_FIRST={run} TRAINER_SOAK_RUNS=1, of {', '.join(allowed)}")
        shown = {key: spec[key] for key in ("strategy", "settings", "tasks", "train", "warm_standby")}
        print(json.dumps({"trial": trial, **shown}))
        spec["settings"]["lives"] = str(tmp_path / "lives")
        soaked = Soaked(tmp_path, spec, trial, faults, f"TRAINER_SOAK_MARKER={SEED}-{run}-{os.getpid()}")
        begun = time.monotonic()
        codes = soaked.run()
        summary = {**asked_for(spec, faults), **soaked.seen, "codes": codes, "seconds": time.monotonic() - begun}
        (tmp_path / "run.json").write_text(json.dumps(summary))
        verdict = subprocess.run([sys.executable, str(JUDGE), str(tmp_path)], capture_output=True, text=True)
        reported = f"{'WRONG' if verdict.returncode else 'ok'} {trial} codes {codes}, {'; '.join(soaked.done)}"
        print(reported)
        # To be read while other runs go on.
        (tmp_path / "verdict.txt").write_text(f"{reported}\n{verdict.stdout}{verdict.stderr}{soaked.output}")
        assert verdict.returncode == 0, f"{verdict.stdout}{verdict.stderr}{reported}\n{soaked.output}"


def asked_for(spec: dict[str, Any], faults: list[plan.Fault]) -> dict[str, Any]:
    """What the judge needs of the plan."""
    sync, train, settings = spec["strategy"] != "parameter_server", spec["train"], spec["settings"]
    counts = load.build(spec).tasks.counts()
    replicas = spec["tasks"]["worker"].get("cpu_devices", 1) * (counts["worker"] if sync else 1)
    return {
        "steps": train["steps"],
        "global_batch": train["batch_size"] * replicas,
        "sync": sync,
        "workers": counts["worker"],
        "allowed": [Exit.STOPPED, Exit.USER] if any(f.kind == "full disk" for f in faults) else [Exit.STOPPED],
        "model_dir": spec["model_dir"],
        "lost_steps": 0 if sync else len(faults),
        "epoch": train["steps_per_epoch"] if settings.get("unlisted") else None,
        "differs": [settings["differs"], settings["unlike"]] if settings.get("differs") else None,
        "readers": [f"worker:{i}" for i in range(counts["worker"])] if sync else ["chief:0"],
    }


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[bool]:
    """A small file system of its own, where this user may mount one."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


class Soaked:
    """One job, started again for as long as it was stopped, or its disk was full."""

    def __init__(self, folder: Path, spec: dict[str, Any], trial: str, faults: list[plan.Fault], marker: str) -> None:
        self.folder, self.spec, self.trial, self.faults, self.marker = folder, spec, trial, faults, marker
        self.seen: dict[str, Any] = {"marker": marker, "lives": str(folder / "lives")}
        """For the judge."""
        self.done: list[str] = []
        self.output = ""
        self._filler = Path(spec["model_dir"]).parent / "filler"
        self._clock = folder / "clock"
        self._clock.write_text("0")

    def run(self) -> list[int]:
        """The exit codes of all launches."""
        name, _, value = self.marker.partition("=")
        environ = {name: value}
        if self.trial == "evictions":
            return [self._evict(environ)]
        if any(fault.kind == "clock" for fault in self.faults):
            path = os.pathsep.join([str(CLOCK), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
            environ |= {"SOAK_CLOCK": str(self._clock), "PYTHONPATH": path}
        codes: list[int] = []
        while len(codes) < LAUNCHES and (not codes or codes[-1] in (Exit.STOPPED, Exit.USER)):
            with Job(self.folder, self.spec, environ=environ) as job:
                if self.trial == "flood":  # its tasks inherit it
                    resource.prlimit(job.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
                if not codes:
                    self._begin(job)
                    self._harm(job)
                codes.append(job.wait(400))
                self.output += f"--- launch {len(codes)}\n{notable(job)}\n"
                self.seen["printed"] = job.lines
            self._filler.unlink(missing_ok=True)
            if self.trial == "differs":
                break
        return codes

    def _begin(self, job: Job) -> None:
        """Waits for the moment from which faults come, if any do."""
        job.until("the chief answers", bool)
        self._note_ports(job)
        if self.trial == "differs":
            return
        job.until("the cluster has formed", lambda s: s["generation"] >= 1)
        if self.trial == "flood":
            self._flood(job)
        elif "nap" in self.spec["settings"]:
            job.until_formed_again(0)

    def _evict(self, environ: dict[str, str]) -> int:
        """The chief's supervisor is killed and started again, as by a node's eviction; nobody else is touched."""
        with Tasks(self.spec, environ) as job:
            generation = 0
            for fault in self.faults:
                status = job.until_formed_again(generation)
                generation = status["generation"]
                time.sleep(fault.after)
                step = job.status().get("step")
                job.kill(fault.task)
                job.start(fault.task)
                self.done.append(f"kill supervisor {fault.task} at step {step}")
            self._note_ports(job)
            code = job.wait(400)
            self.output = notable(job)
            self.seen |= {"chief": job.chief.name, "processes": job.codes, "evictions": len(self.done)}
            return code

    def _flood(self, job: Job) -> None:
        """A stranger at the chief's control port, until the job is over."""
        told = self.folder / "stranger.json"
        port = json.loads(layout.state(job.model_dir).read_text())["control_port"]
        pids = defaultdict[str, set[tuple[int, int]]](set)
        with subprocess.Popen([sys.executable, str(STRANGER), str(port), str(told)], stdin=subprocess.PIPE) as stranger:
            while not job.over():
                for name, row in job.status().get("tasks", {}).items():
                    if row.get("pid") and row.get("child_pid"):
                        pids[name].add((row["pid"], row["child_pid"]))
                time.sleep(0.5)
            assert stranger.stdin is not None
            stranger.stdin.close()
        self.seen |= {"flood": json.loads(told.read_text()), "pids": {name: [*found] for name, found in pids.items()}}
        self.done.append(f"flood {json.dumps(self.seen['flood'])}")

    def _note_ports(self, job: Job | Tasks) -> None:
        state = json.loads(layout.state(job.model_dir).read_text())
        first = (state["control_port"] - CONTROL_PORT_OFFSET) // BLOCK * BLOCK
        self.seen["ports"] = [first, first + BLOCK - 1]

    def _harm(self, job: Job) -> None:
        for fault in self.faults:
            deadline = time.monotonic() + fault.after
            while time.monotonic() < deadline and not job.over():
                time.sleep(0.02)
            what = self._do(job, fault)
            self.done.append(f"{fault.kind} {fault.task} after {fault.after:.1f} s ({fault.seconds:.0f}): {what}")

    def _do(self, job: Job, fault: plan.Fault) -> str:
        """What came of it."""
        if job.over():
            return "the job was over"
        if fault.kind == "end job":
            job.process.send_signal(signal.SIGTERM)
        elif fault.kind == "clock":
            self._clock.write_text(f"{fault.seconds:.0f}")
        elif fault.kind == "full disk":
            with contextlib.suppress(OSError), self._filler.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(1 << 16))
        else:
            row = job.status().get("tasks", {}).get(fault.task, {})
            pids = [pid for which in _WHICH[fault.kind] if (pid := row.get(which))]
            number = {"kill": signal.SIGKILL, "end": signal.SIGTERM, "pause": signal.SIGSTOP}[fault.kind.split()[0]]
            hit = [pid for pid in pids if _send(pid, number)]
            if number is signal.SIGSTOP and hit:
                threading.Timer(fault.seconds, lambda: [_send(pid, signal.SIGCONT) for pid in hit]).start()
            return f"hit {len(hit)} at step {job.status().get('step')}"
        return "done"


def notable(job: Job | Tasks) -> str:
    return "\n".join(line for line in job.lines if "| step " not in line)


_WHICH = {"kill": ["child_pid"], "kill supervisor": ["pid"], "end task": ["pid"], "pause": ["child_pid"],
          "pause supervisor": ["pid"], "pause both": ["pid", "child_pid"]}  # fmt: skip


def _send(pid: int, number: signal.Signals) -> bool:
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True
