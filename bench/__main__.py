"""`make bench`: costs and throughput of trainer, compared with its alternatives.

    python -m bench [PART ...] [--turns N] [--smoke]      parts: throughput, python, steps, costs,
                                                          growth, page, gpu
    python -m bench --avx2 PART ...                       as on a CPU without AVX-512
    python -m bench --render                              writes pictures and tables again, of the kept results

Writes bench/results/PART-INSTRUCTIONS.json, docs/plots and the tables of docs/benchmarks.md: a ratio depends on
the CPU, so the last result of each kind of CPU is kept. With --smoke each runs once, small, and nothing is written.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

from bench import costs, gpu, growth, losses, page, python, run, section, steps, throughput

PAGE = run.ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- `make bench` writes from here -->", "<!-- to here: bench -->"
PARTS: dict[str, tuple[Callable[[int, bool], Any], Callable[[Any], list[str]]]] = {
    "throughput": (throughput.measure, throughput.table),
    "python": (python.measure, python.table),
    "steps": (steps.measure, steps.table),
    "costs": (costs.measure, costs.table),
    "growth": (growth.measure, growth.table),
    "page": (page.measure, page.table),
    "gpu": (gpu.measure, gpu.table),
}
APART = {"page"}
"""Takes ten minutes, and half an hour is for all: it is measured when it is asked for."""
TABLES: dict[str, Callable[[Any], list[str]]] = {
    **{part: table for part, (_, table) in PARTS.items()},
    "losses": losses.table,
}
PICTURES = {
    "throughput": "Examples/s of trainer and its peers, as a share of two processes that do not communicate",
    "steps": "Milliseconds of a step by what they are spent on",
    "growth": "Examples/s by the number of workers",
}
"""By part what its picture shows (plot.py)."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="see bench/__main__.py")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; default all but page")
    parser.add_argument("--turns", type=int, default=5, help="of each contender (5)")
    parser.add_argument("--smoke", action="store_true", help="everything once, small, to see that it runs")
    parser.add_argument("--render", action="store_true", help="measure nothing, write pictures and tables again")
    parser.add_argument("--avx2", action="store_true", help="switch AVX-512 off")
    arguments = parser.parse_args()
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"{', '.join(unknown)}: parts are {', '.join(PARTS)}")
    os.environ.update(run.AVX2 if arguments.avx2 else {})
    everything = PARTS if arguments.smoke else set(PARTS) - APART
    for part in [] if arguments.render else arguments.parts or [part for part in PARTS if part in everything]:
        measure, table = PARTS[part]
        print(f"{part}:", flush=True)
        begun = time.perf_counter()
        figures = measure(arguments.turns, arguments.smoke)
        print("\n".join(table(figures)))
        print(f"{part} took {time.perf_counter() - begun:.0f} s", flush=True)
        if figures and not arguments.smoke:
            section.keep(part, figures)
    if not arguments.smoke:
        subprocess.run([throughput.PEERS_PYTHON, "-m", "bench.plot"], check=True, cwd=run.ROOT)
        write_page()


def write_page() -> None:
    """The tables of all results that there are, each with the machine that it comes from, and their pictures."""
    lines = [BEGIN]
    for part, table in TABLES.items():
        for path in sorted(run.RESULTS.glob(f"{part}-*.json")):
            result = json.loads(path.read_text())
            on = result["machine"]
            machine = f"{on['cpu']} ({', '.join(on['instructions'])}), {on['cores']} cores, {on['date']}"
            lines += ["", f"{part.capitalize()} on {machine}:", "", *table(result["figures"])]
        lines += section.picture(part, PICTURES.get(part, ""))
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + "\n".join([*lines, "", END]) + rest.split(END)[1])


if __name__ == "__main__":
    main()
