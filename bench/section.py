"""Results of a benchmark that runs apart from `make bench`, and its tables between two marks of docs/benchmarks.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bench import run

PAGE = run.ROOT / "docs" / "benchmarks.md"


def read(part: str) -> dict[str, Any]:
    """The figures on this kind of CPU; empty if there are none."""
    path = run.results(part, run.machine())
    return dict(json.loads(path.read_text())["figures"]) if path.exists() else {}


def keep(part: str, figures: Any) -> None:
    """Keeps the figures of this kind of CPU."""
    machine = run.machine()
    run.RESULTS.mkdir(exist_ok=True)
    run.results(part, machine).write_text(json.dumps({"machine": machine, "figures": figures}, indent=1) + "\n")


def picture(part: str, shows: str) -> list[str]:
    """A part's picture (plot.py) in the reader's colours, if there is one: GitHub and mkdocs both know this element."""
    if not (run.ROOT / "docs" / "plots" / f"{part}-light.svg").exists():
        return []
    return [
        "",
        "<picture>",
        f'<source media="(prefers-color-scheme: dark)" srcset="plots/{part}-dark.svg">',
        f'<img alt="{shows}" src="plots/{part}-light.svg">',
        "</picture>",
    ]


def write(part: str, figures: Any, table: Callable[[Any], list[str]], shows: str = "") -> None:
    """Keeps the figures of this kind of CPU, and renews the tables of all kinds.

    Args:
        shows: what the picture shows, if there is one.
    """
    keep(part, figures)
    lines = [begin(part)]
    for path in sorted(run.RESULTS.glob(f"{part}-*.json")):
        result = json.loads(path.read_text())
        on = result["machine"]
        lines += ["", f"{on['cpu']} ({', '.join(on['instructions'])}), {on['cores']} cores, {on['date']}:", ""]
        lines += table(result["figures"])
    lines += picture(part, shows)
    before, rest = PAGE.read_text().split(begin(part))
    PAGE.write_text(before + "\n".join([*lines, "", end(part)]) + rest.split(end(part))[1])


def begin(part: str) -> str:
    return f"<!-- `make bench-{part}` writes from here -->"


def end(part: str) -> str:
    return f"<!-- to here: bench-{part} -->"
