"""Judges one soak job by the files and processes that it left: `python judge.py FOLDER`.

It reads files and /proc and imports nothing of trainer. FOLDER/run.json holds what was asked for and what came back:
{"steps", "global_batch", "sync", "workers", "codes", "allowed", "marker", "ports": [first, last], "model_dir",
"lost_steps", "seconds", "lives", "readers"}, and

- if the workload has state that Keras does not list: "epoch", the steps of one;
- if a task is unlike the others: "differs": [what, task], "printed";
- if its chief was evicted: "chief", "evictions", "processes", the exit codes of each task's processes;
- if its control port was flooded: "flood", what the stranger saw, "pids", those of each task's processes.

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

from trainer.model_dir import layout

LISTEN = "0A"
"""State in /proc/net/tcp."""
EXAMPLES, MISSING, DRAWN = 1438, 7, 8
"""Of the workload: examples, those that a task lacks that is unlike the others, and random numbers of a step."""
GENERATOR = [3, 0, 0]
"""The state of tf.random.Generator.from_seed(3). Each number takes 256 from the first value."""
SLOWEST = 10.0
"""Seconds for an answer of /healthz, on a machine that does other things too."""
FEWEST_POSTS, FEWEST_SILENT = 20, 512
ANSWERS = {"too long": "413", "broken chunk": "400", "no HTTP": "400"}
"""To a stranger's posts; to others 403, which is said before a body is read as a report. To some `none`: a connection
that is closed."""


def main(folder: Path) -> int:
    run = json.loads((folder / "run.json").read_text())
    model_dir = Path(run["model_dir"])
    problems = [*_judged(run, model_dir), *_left_over(run)]
    for problem in problems:
        print(problem)
    return int(bool(problems))


def _judged(run: dict[str, Any], model_dir: Path) -> list[str]:
    if run.get("differs"):
        return _refused(run, model_dir)
    problems = [*_ends(run, model_dir), *_checkpoints(run, model_dir), *_curve(run, model_dir)]
    if "evictions" in run:
        problems += _evicted(run)
    if "flood" in run:
        problems += _flooded(run, model_dir)
    return problems


def _ends(run: dict[str, Any], model_dir: Path) -> list[str]:
    *before, last = run["codes"]
    problems = [f"exit code {code}, expected one of {run['allowed']}" for code in before if code not in run["allowed"]]
    if last != 0:
        return [*problems, f"the last exit code is {last}"]
    result = json.loads(layout.result(model_dir).read_text())
    if (result["status"], result["steps"]) != ("succeeded", run["steps"]):
        problems.append(f"result.json: {result['status']} after {result['steps']} steps, expected {run['steps']}")
    # A job that was started again after its last step has none to time.
    resumed = re.findall(r"resume_step=(\d+)", " ".join(result["tasks"].values()))
    untrained = set(resumed) == {str(run["steps"])}
    for key in ("seconds", *(() if untrained else ("seconds_to_first_step",))):
        if result[key] is None or not 0 <= result[key] <= run["seconds"] + 1:
            problems.append(f"result.json: {key} is {result[key]}, and the whole run took {run['seconds']:.1f}")
    if run.get("epoch"):
        problems += _unlisted_figures(run, "result.json: test_", run["steps"], result, "test_", at_the_end=True)
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
    return problems + (_unlisted(run, label, values) if run.get("epoch") else [])


def _unlisted(run: dict[str, Any], step: int, values: dict[str, Any]) -> list[str]:
    """What is wrong with what Keras does not list, at a step. A checkpoint at the end of an epoch may come before its
    callbacks, except that of the last step."""
    problems = []
    last = step == run["steps"]
    ended = {step // run["epoch"]} | (set() if last else {(step - 1) // run["epoch"]})
    found = {name: values.get(f"{name}:0") for name in ("epochs_ended", "steps_made", "epoch_number", "StateVar")}
    if found["epochs_ended"] is None or float(found["epochs_ended"]) not in ended:
        problems.append(f"epochs_ended is {found['epochs_ended']}, expected one of {sorted(ended)}")
    begun = {(step - 1) // run["epoch"] + 1} | (set() if last else {step // run["epoch"] + 1})
    if run["sync"] and (found["epoch_number"] is None or float(found["epoch_number"]) not in begun):
        problems.append(f"epoch_number is {found['epoch_number']}, expected one of {sorted(begun)}")
    # A ps-worker that dies, or comes back too late, may have run a step without its update.
    slack = run["lost_steps"] * run["workers"]
    made = -1 if found["steps_made"] is None else int(found["steps_made"])
    if not step <= made <= step + slack:
        problems.append(f"steps_made is {made}, expected {step}, at most {slack} more")
    state = [] if found["StateVar"] is None else found["StateVar"].tolist()
    drawn = (state[0] - GENERATOR[0]) / 256 / DRAWN if state else -1.0
    if state[1:] != GENERATOR[1:] or not step <= drawn <= step + slack:
        problems.append(f"the state of the generator is {state}, that of {drawn} steps, expected {step}")
    return problems


def _unlisted_figures(
    run: dict[str, Any], where: str, step: int, row: dict[str, Any], prefix: str = "", *, at_the_end: bool = False
) -> list[str]:
    """What is wrong with figures of what Keras does not list: in a line of the curve, whose steps are of one epoch, or
    at the end. They are means over all tasks."""
    epoch = (step - 1) // run["epoch"]
    wanted = {"epochs_ended": step // run["epoch"] if at_the_end else epoch}
    if run["sync"]:
        wanted["epoch"] = epoch + 1
    problems = [
        f"{where}{name} is {row.get(prefix + name)} at step {step}, expected {value}"
        for name, value in wanted.items()
        if row.get(prefix + name) is None or abs(row[prefix + name] - value) > 1e-3
    ]
    made = row.get(prefix + "steps_made")
    # In a curve the mean of up to all steps of the epoch. Steps of ps-workers overtake each other.
    least = step if at_the_end else step - run["epoch"] if run["sync"] else 0
    if made is None or not least <= made <= step + run["lost_steps"] * run["workers"]:
        problems.append(f"{where}steps_made is {made} at step {step}, expected {least} at least")
    return problems


def _curve(run: dict[str, Any], model_dir: Path) -> list[str]:
    rows = [json.loads(line) for line in (model_dir / "metrics.jsonl").read_text().splitlines()]
    steps = [row["step"] for row in rows]
    problems = []
    if steps != sorted(set(steps)) or not steps or steps[-1] != run["steps"]:
        problems.append(f"metrics.jsonl: steps {steps[:3]}...{steps[-3:]} are not each once up to {run['steps']}")
    if run.get("epoch"):
        for row in rows:
            problems += _unlisted_figures(run, "metrics.jsonl: ", row["step"], row)
    return problems


def _refused(run: dict[str, Any], model_dir: Path) -> list[str]:
    """A job in which a task is unlike the others ends with 2 before its first step, and names both."""
    what, unlike = run["differs"]
    problems = [] if run["codes"] == [2] else [f"exit codes {run['codes']}, expected 2 and no other"]
    chief_is_unlike = unlike == "worker:0"
    named = [f"worker:{i}" for i in range(1, run["workers"])] if chief_is_unlike else [unlike]
    if what == "examples":
        its, chiefs = f"{EXAMPLES - MISSING} examples", f"{EXAMPLES} examples"
        text = "{} has {}, and the chief {}"
    else:
        its, chiefs = (f"trained variable {name}/kernel float32[64,16]" for name in ("right", "left"))
        text = "{} has the {} where the chief has the {}"
    if chief_is_unlike:
        its, chiefs = chiefs, its
    expected = [text.format(name, its, chiefs) for name in named]
    lines = [line for line in run["printed"] if line.startswith("trainer: ")]
    if len(lines) != 1 or not any(each in lines[0] for each in expected):
        problems.append(f"the last line is {lines}, expected one with {' or '.join(expected)}")
    curve = model_dir / "metrics.jsonl"
    if (curve.exists() and curve.read_text()) or [*model_dir.glob("checkpoints/step-*")]:
        problems.append("a step was made")
    return problems + _restarted(run)


def _restarted(run: dict[str, Any]) -> list[str]:
    """Tasks of which not one process has read the training data, but none or several."""
    lives = [path.name.rpartition("-")[0] for path in Path(run["lives"]).iterdir()]
    return [
        f"{lives.count(name)} processes of {name} have read the training data"
        for name in run["readers"]
        if lives.count(name) != 1
    ]


def _evicted(run: dict[str, Any]) -> list[str]:
    """The chief is one process more for each eviction; all other tasks are the processes that they were."""
    problems = [] if run["evictions"] == 3 else [f"the chief was evicted {run['evictions']} times, expected 3"]
    for name, codes in run["processes"].items():
        processes = run["evictions"] + 1 if name == run["chief"] else 1
        if len(codes) != processes or codes[-1] != 0:
            problems.append(f"{name}: exit codes {codes}, expected those of {processes} processes, the last 0")
    return problems


def _flooded(run: dict[str, Any], model_dir: Path) -> list[str]:
    """The job did not notice the flood, and its control port answered others."""
    flood, problems = run["flood"], _restarted(run)
    if run["codes"] != [0]:
        problems.append(f"exit codes {run['codes']}, expected 0")
    result = json.loads(layout.result(model_dir).read_text()) if run["codes"] == [0] else {}
    if result and result["generations"] != 1:
        problems.append(f"{result['generations']} generations, expected 1")
    for name, pids in run["pids"].items():
        if len(pids) != 1:
            problems.append(f"{name} had several processes: {pids}")
    if not run["pids"] or not flood["asked"] or flood["silent"] < FEWEST_SILENT:
        problems.append(f"the flood was none: {flood}")
    answered = sum(number for posts in flood["posts"].values() for answer, number in posts.items() if answer != "none")
    if answered < FEWEST_POSTS:
        problems.append(f"{answered} of the stranger's posts were answered")
    for name, posts in flood["posts"].items():
        wanted = ANSWERS.get(name, "403")
        if posts.keys() - {wanted, "none"}:
            problems.append(f"the stranger's posts of {name!r} were answered by {posts}, expected {wanted}")
    if flood["unanswered"] or flood["slowest"] > SLOWEST:
        problems.append(f"/healthz: {flood['unanswered']} without an answer, the slowest {flood['slowest']} s")
    return problems


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
