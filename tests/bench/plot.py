"""Draws results/growth-*.json as docs/growth.png. A script of its own, for the environment of the peers: matplotlib
is there and not beside TensorFlow, because Keras imports it where it is installed, 0.9 s at the start of each task.

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
    figure, axes = pyplot.subplots(figsize=(6, 3.6), layout="constrained")
    for path in sorted(RESULTS.glob("growth-*.json")):
        result = json.loads(path.read_text())
        rows, machine = result["figures"], result["machine"]
        workers = [row["workers"] for row in rows]
        one = rows[0]["examples_per_second"]
        (line,) = axes.plot(
            workers,
            [row["examples_per_second"] for row in rows],
            "o-",
            label=f"measured, {machine['instructions'][-1]}",
        )
        axes.plot(
            workers,
            [one * min(count, machine["cores"]) for count in workers],
            "--",
            color=line.get_color(),
            label=f"one worker's, times {machine['cores']} cores at most",
        )
        axes.set_xscale("log", base=2)
        axes.set_xticks(workers, [str(count) for count in workers])
    axes.set(xlabel="workers", ylabel="examples/s", title="MultiWorkerMirrored, weak scaling")
    axes.set_ylim(bottom=0)
    axes.legend()
    figure.savefig(Path(__file__).parents[2] / "docs" / "growth.png", dpi=100, metadata={"Software": None})


if __name__ == "__main__":
    main()
