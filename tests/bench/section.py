"""Results of a benchmark that runs apart from `make bench`, and its tables between two marks of docs/benchmarks.md."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench import run

RESULTS = Path(__file__).parent / "results"
PAGE = run.ROOT / "docs" / "benchmarks.md"


def read(part: str) -> dict[str, Any]:
    """The figures on this kind of CPU; empty if there are none."""
    path = _path(part, run.machine())
    return dict(json.loads(path.read_text())["figures"]) if path.exists() else {}


def write(part: str, figures: Any, table: Callable[[Any], list[str]]) -> None:
    """Keeps the figures of this kind of CPU, and renews the tables of all kinds."""
    machine = run.machine()
    _path(part, machine).write_text(json.dumps({"machine": machine, "figures": figures}, indent=1) + "\n")
    lines = [begin(part)]
    for path in sorted(RESULTS.glob(f"{part}-*.json")):
        result = json.loads(path.read_text())
        on = result["machine"]
        lines += ["", f"{on['cpu']} ({', '.join(on['instructions'])}), {on['cores']} cores, {on['date']}:", ""]
        lines += table(result["figures"])
    before, rest = PAGE.read_text().split(begin(part))
    PAGE.write_text(before + "\n".join([*lines, "", end(part)]) + rest.split(end(part))[1])


def begin(part: str) -> str:
    return f"<!-- `make bench-{part}` writes from here -->"


def end(part: str) -> str:
    return f"<!-- to here: bench-{part} -->"


def _path(part: str, machine: dict[str, Any]) -> Path:
    return RESULTS / f"{part}-{['other', *machine['instructions']][-1]}.json"
