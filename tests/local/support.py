"""The support table in docs/models.md: each feature under each API and strategy, compared with Keras' own fit.

A feature is a workload file in workloads/features: its docstring names it. The file may have SPEC (settings of its
job), RANDOM (its results depend on the seed of each replica, so that they are compared with those of several seeds),
INIT_FROM (run as a program, it prints the path of what its job begins with), of_fit() (arguments of model.fit) and
in_keras() (the model as Keras trains it).
Each job is killed once in its middle. python -m tests.local.support [FEATURE...]     `make support-table`
"""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from tests.local.specs import DEADLINES
from tests.tools.harness import Job
from trainer.job import load
from trainer.job.errors import UserError

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "models.md"
BEGIN, END = "<!-- `make support-table` writes from here -->", "<!-- to here -->"
FEATURES = Path(__file__).parent / "workloads" / "features"

APIS: dict[str, tuple[str, ...]] = {
    "loop": (),
    "keras_fit": (
        "batch_norm", "compile", "dropout", "early_stopping", "files_of_callbacks", "lookup", "metrics", "of_fit",
        "plain", "sample_weights", "schedule_by_epoch", "train_step",
    ),
    "train_and_evaluate": ("estimator",),
}  # fmt: skip
"""The features that are tried: all that give a model, those in which model.fit may differ from the loop, which it is
(decision 47), and those of the Estimator's contract."""
Setup = Mapping[str, Any]
ONE: Setup = {"strategy": "one_device"}
STRATEGIES: dict[str, Setup] = {
    "one_device": ONE,
    "mirrored": {"strategy": "mirrored", "tasks": {"worker": {"cpu_devices": 2}}},
    "central_storage": {"strategy": "central_storage", "tasks": {"worker": {"cpu_devices": 2}}},
    "multi_worker_mirrored": {"strategy": "multi_worker_mirrored", "tasks": {"worker": 2}},
    "parameter_server": {"strategy": "parameter_server", "tasks": {"worker": 2, "ps": 1}},
}
REPLICAS = {"mirrored": 2, "central_storage": 2, "multi_worker_mirrored": 2}
"""In sync; 1 under the others."""
STEPS, BATCH = 200, 64
SEEDS = 8
OUTSIDE = 5.41 * (1 + 1 / SEEDS) ** 0.5
"""Standard deviations of SEEDS results beyond which a further one lies once in a thousand times, by Student's t with 7
degrees of freedom. A table has some hundred such figures."""
EQUAL = 1e-3
"""Relative difference of a figure that the order of sums of floats explains, over all steps."""
NOISE = 0.02
"""Of a figure, the least spread: a few seeds may agree by chance to one of 640 examples."""


class Cell(NamedTuple):
    feature: str
    api: str
    strategy: str


def features() -> dict[str, str]:
    """The title of each feature by its name."""
    files = sorted(FEATURES.glob("*.py"))
    trees = {file.stem: ast.parse(file.read_text()) for file in files if file.stem != "common"}
    return {name: ast.get_docstring(tree) or name for name, tree in trees.items()}


def api_of(feature: str) -> str:
    """An API that takes the feature's file."""
    tree = ast.parse((FEATURES / f"{feature}.py").read_text())
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return "train_and_evaluate" if "model" not in defined else "keras_fit" if "fit" in defined else "loop"


def cells() -> list[Cell]:
    models = [name for name in features() if api_of(name) != "train_and_evaluate"]
    rows = [(api, feature) for api, of_api in APIS.items() for feature in of_api or models]
    return [Cell(feature, api, strategy) for api, feature in rows for strategy in STRATEGIES]


def spec_of(feature: str, api: str, setup: Setup, seed: int = 0) -> dict[str, Any]:
    """The job of a cell: the same global batch under each strategy."""
    own = _constant(feature, "SPEC", {})
    train = {"steps": STEPS, "checkpoint_steps": 40, **own.get("train", {})}
    if "epochs" in train:
        del train["steps"]
    settings = (
        {"batch": BATCH // REPLICAS.get(setup["strategy"], 1)} if "batch" in _constant(feature, "SETTINGS", {}) else {}
    )
    return {
        **setup,
        **own,
        **({"init_from": _printed_by(feature)} if _constant(feature, "INIT_FROM", False) else {}),
        "settings": settings,
        "check_exports": False,
        "name": "support",
        "api": api,
        "workload": str(FEATURES / f"{feature}.py"),
        "warm_standby": False,
        "deadlines": DEADLINES,
        "train": {"global_batch_size": BATCH, "log_steps": 20, "seed": seed, **train},
    }


@functools.cache
def _printed_by(feature: str) -> str:
    command = [sys.executable, str(FEATURES / f"{feature}.py")]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.splitlines()[-1]


def try_out(cell: Cell, folder: Path) -> str:
    """The text of a cell, from a run that is killed once: works, refused or differs."""
    setup = STRATEGIES[cell.strategy]
    spec = spec_of(cell.feature, cell.api, setup)
    try:
        load.build(spec)
    except UserError as error:
        return f"refused: {_reason(str(error))}"
    with Job(folder, spec) as job:
        if not _kill_one(job):
            job.wait()
            stated = [line.rpartition("trainer: ")[2] for line in job.lines if "trainer: " in line]
            return f"refused: {_reason(stated[0])}" if stated else f"differs: {job.output}"
        code = job.wait(300)
    if code != 0:
        return f"differs: exit code {code}: {job.output}"
    result = job.result()
    if result["generations"] < 2:
        return "differs: it was not resumed"
    asynchronous = setup["strategy"] == "parameter_server"
    return _judge(cell.feature, result, asynchronous)


def _kill_one(job: Job) -> bool:
    """Kills the last task's training process after the second checkpoint; False if the job ends before."""
    try:
        status = job.until_step(90)
    except AssertionError:
        if job.over():
            return False
        raise
    task = next(task for name, task in status["tasks"].items() if name.startswith(("worker", "chief")))
    os.kill(task["child_pid"], signal.SIGKILL)
    return True


def _judge(feature: str, result: dict[str, Any], asynchronous: bool) -> str:
    several = asynchronous or _constant(feature, "RANDOM", False)
    expected = baseline(feature, SEEDS if several else 1)
    # Updates of two workers that lack each other's are worth between half as many steps and as many.
    ends = [expected, baseline(feature, SEEDS, share=0.5)] if asynchronous else [expected]
    for name, value in expected[0].items():
        found = _figures(result)[name]
        if several:
            ranges = [_range([figures[name] for figures in end]) for end in ends]
            low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
        else:
            low, high = value - EQUAL * abs(value), value + EQUAL * abs(value)
        if not low <= found <= high:
            return f"differs: {name} is {found:.4g}, in Keras' own fit {low:.4g} to {high:.4g}"
    return "works"


def _range(values: Sequence[float]) -> tuple[float, float]:
    """That of one further result."""
    middle = statistics.mean(values)
    spread = max(OUTSIDE * statistics.stdev(values), NOISE * abs(middle))
    return middle - spread, middle + spread


def _figures(result: dict[str, Any]) -> dict[str, float]:
    """Of a result: test figures, and that of the best checkpoint, by the names of `tests.local.baseline`."""
    best = {"best": result["best"]["value"]} if result.get("best") else {}
    return best | {name.removeprefix("test_"): value for name, value in result.items() if name.startswith("test_")}


@functools.cache
def baseline(feature: str, seeds: int, share: float = 1.0) -> list[dict[str, float]]:
    """Figures of Keras' own fit by seed, after this share of the steps."""
    command = [sys.executable, "-m", "tests.local.baseline", feature, str(share), *map(str, range(seeds))]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    figures: list[dict[str, float]] = json.loads(ended.stdout.splitlines()[-1])
    return figures


def _constant(feature: str, name: str, default: Any) -> Any:
    """A literal of a feature's file."""
    for node in ast.parse((FEATURES / f"{feature}.py").read_text()).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == name:
            return ast.literal_eval(node.value)
    return default


def _reason(message: str) -> str:
    """The rule of a message, without the task, file and variable before it and the fix after it."""
    return re.sub(r"^(\S+: )*", "", message).partition("; ")[0]


def claims() -> dict[Cell, str]:
    """The cells of the page."""
    text = PAGE.read_text()
    titles, found = {title: name for name, title in features().items()}, dict[Cell, str]()
    api = ""
    for line in text[text.index(BEGIN) : text.index(END)].splitlines():
        if line.startswith("| `api: "):
            api = line.split("`")[1].removeprefix("api: ")
        elif line.startswith("| ") and (row := [cell.strip() for cell in line.strip("|").split("|")])[0] in titles:
            found |= {Cell(titles[row[0]], api, s): cell for s, cell in zip(STRATEGIES, row[1:], strict=True)}
    return found


def write(texts: Mapping[Cell, str]) -> None:
    """Writes the table of these cells into the page."""
    lines = [BEGIN]
    for api in APIS:
        lines += ["", f"| `api: {api}` | " + " | ".join(f"`{s}`" for s in STRATEGIES) + " |"]
        lines += ["|---|" + "---|" * len(STRATEGIES)]
        for feature, title in features().items():
            if Cell(feature, api, "one_device") not in cells():
                continue
            row = [texts.get(Cell(feature, api, strategy), "?") for strategy in STRATEGIES]
            lines.append(f"| {title} | " + " | ".join(row) + " |")
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + "\n".join([*lines, "", END]) + rest.split(END)[1])


def _run(wanted: list[Cell]) -> Iterator[tuple[Cell, str]]:
    def one(cell: Cell) -> tuple[Cell, str]:
        with tempfile.TemporaryDirectory() as folder:
            return cell, try_out(cell, Path(folder))

    with ThreadPoolExecutor(2) as pool:
        yield from pool.map(one, wanted)


def main(names: list[str]) -> None:
    texts = claims()
    for cell, text in _run([cell for cell in cells() if not names or cell.feature in names]):
        print(f"{cell.feature}, {cell.api}, {cell.strategy}: {text}", flush=True)
        texts[cell] = text.partition("\n")[0]
    write(texts)


if __name__ == "__main__":
    main(sys.argv[1:])
