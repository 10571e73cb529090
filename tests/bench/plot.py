"""Draws results/growth.json as growth.png. A script of its own, for the environment of the peers: matplotlib is there
and not beside TensorFlow, for Keras imports it wherever it is installed, 0.9 s at the start of each task.

    .venv-peers/bin/python tests/bench/plot.py
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib

matplotlib.use("agg")

from matplotlib import pyplot

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    result = json.loads((RESULTS / "growth.json").read_text())
    rows, cores = result["figures"], result["machine"]["cores"]
    workers = [row["workers"] for row in rows]
    one = rows[0]["examples_per_second"]
    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    axes.plot(workers, [row["examples_per_second"] for row in rows], "o-", label="measured")
    axes.plot(workers, [one * min(count, cores) for count in workers], "--", label="one worker's, times cores in use")
    axes.set_xscale("log", base=2)
    axes.set_xticks(workers, [str(count) for count in workers])
    axes.set(xlabel="workers", ylabel="examples/s", title=f"MultiWorkerMirrored, weak scaling on {cores} cores")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(RESULTS / "growth.png", dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main()
