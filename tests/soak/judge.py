"""Judges one soak job by the files and processes that it left: `python judge.py FOLDER`.

It reads files and /proc and imports nothing of trainer. FOLDER/run.json holds what was asked for and what came back:
{"steps", "global_batch", "sync", "codes", "allowed", "marker", "ports": [first, last], "model_dir", "lost_steps",
"seconds"}.
Prints what is wrong, a line each, and ends with 1 if anything is.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

LISTEN = "0A"
"""State in /proc/net/tcp."""


def main(folder: Path) -> int:
    run = json.loads((folder / "run.json").read_text())
    model_dir = Path(run["model_dir"])
    problems = [*_ends(run, model_dir), *_checkpoints(run, model_dir), *_curve(run, model_dir), *_left_over(run)]
    for problem in problems:
        print(problem)
    return int(bool(problems))


def _ends(run: dict[str, Any], model_dir: Path) -> list[str]:
    *before, last = run["codes"]
    problems = [f"exit code {code}, expected one of {run['allowed']}" for code in before if code not in run["allowed"]]
    if last != 0:
        return [*problems, f"the last exit code is {last}"]
    result = json.loads((model_dir / "result.json").read_text())
    if (result["status"], result["steps"]) != ("succeeded", run["steps"]):
        problems.append(f"result.json: {result['status']} after {result['steps']} steps, expected {run['steps']}")
    # A job that was started again after its last step has none to time.
    resumed = re.findall(r"resume_step=(\d+)", " ".join(result["tasks"].values()))
    untrained = set(resumed) == {str(run["steps"])}
    for key in ("seconds", *(() if untrained else ("seconds_to_first_step",))):
        if result[key] is None or not 0 <= result[key] <= run["seconds"] + 1:
            problems.append(f"result.json: {key} is {result[key]}, and the whole run took {run['seconds']:.1f}")
    return problems


def _checkpoints(run: dict[str, Any], model_dir: Path) -> list[str]:
    problems = []
    found = sorted((model_dir / "checkpoints").glob("step-*"))
    if not found or int(found[-1].name.removeprefix("step-")) != run["steps"]:
        problems.append(
            f"the newest checkpoint is {found[-1].name if found else 'missing'}, expected step {run['steps']}"
        )
    for path in found:
        label = int(path.name.removeprefix("step-"))
        meta = json.loads((path / "meta.json").read_text())
        if hashlib.sha256((path / "variables.npz").read_bytes()).hexdigest() != meta["sha256"]:
            problems.append(f"{path.name}: its SHA-256 differs from meta.json")
            continue
        with np.load(path / "variables.npz") as values:
            by_path = {about["path"]: values[name] for name, about in meta["variables"].items()}
        problems += [f"{path.name}: {text}" for text in _values(run, label, meta["step"], by_path)]
    return problems


def _values(run: dict[str, Any], label: int, step: int, values: dict[str, Any]) -> list[str]:
    """What is wrong with a checkpoint's values, by the paths of its variables."""
    problems = [] if step == label else [f"meta.json has step {step}"]
    # The last one is the inner optimizer's, where another wraps it.
    iterations = [int(value) for path, value in values.items() if path.endswith(("/iteration", "/iterations"))]
    if not iterations or iterations[-1] != label:
        problems.append(f"optimizer iterations are {iterations}")
    (seen,) = (value for path, value in values.items() if path.endswith("/seen"))
    times = seen.astype(np.float64) * run["global_batch"]
    if not np.isfinite(times).all():
        return [*problems, "the counts of examples are not finite"]
    total, wanted = times.sum(), label * run["global_batch"]
    # Asynchronous steps that died half-way may have added their examples, and nothing else.
    slack = run["lost_steps"] * run["global_batch"]
    if not wanted - 0.5 <= total <= wanted + slack + 0.5:
        problems.append(f"{total:.1f} examples were applied, expected {wanted}, at most {slack} more")
    if run["sync"] and abs(times - times.round()).max() > 0.01:
        problems.append("an example was applied in part")
    return problems


def _curve(run: dict[str, Any], model_dir: Path) -> list[str]:
    steps = [json.loads(line)["step"] for line in (model_dir / "metrics.jsonl").read_text().splitlines()]
    if steps != sorted(set(steps)) or not steps or steps[-1] != run["steps"]:
        return [f"metrics.jsonl: steps {steps[:3]}...{steps[-3:]} are not each once up to {run['steps']}"]
    return []


def _left_over(run: dict[str, Any]) -> list[str]:
    """Processes with the run's marker in their environment, and open ports of its block that no other process holds."""
    problems, others = [], set()
    for path in Path("/proc").glob("[0-9]*"):
        try:
            marked = run["marker"].encode() in (path / "environ").read_bytes()
            command = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            sockets = {str(descriptor.readlink()) for descriptor in (path / "fd").iterdir()}
        except OSError:
            continue
        if not marked or path.name == str(os.getpid()):
            others |= sockets
        else:
            problems.append(f"process {path.name} is left over: {command[:100]}")
    first, last = run["ports"]
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            port, inode = int(fields[1].rpartition(":")[2], 16), fields[9]
            ours = first <= port <= last or first <= port - 1000 <= last
            if ours and fields[3] == LISTEN and f"socket:[{inode}]" not in others:
                problems.append(f"port {port} is still open")
    return problems


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
