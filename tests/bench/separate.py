"""Tables of the benchmarks that have make targets of their own, because each takes longer than `make bench`.

What they write beside the other results, as {"machine": run.machine(), "figures": ...}; lists hold a value per turn or
seed:

    network-*.json    {contender: {bandwidth in Mbit/s: {"examples_per_second": [...], "seconds_to_accuracy": [...]}}}
    accuracy-*.json   {network: {setting: {"equal_examples": [...], "equal_seconds": [...]}}}

In network-*.json keys of bandwidths are texts, as JSON has them. A turn that did not reach the accuracy has no entry in
"seconds_to_accuracy", and a list may be empty.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from tests.bench import intervals

Network = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]
Accuracy = Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]


def network_table(figures: Network) -> list[str]:
    """Examples per second, and seconds to the accuracy, by bandwidth, with the fastest network first."""
    bandwidths = sorted({each for rows in figures.values() for each in rows}, key=float, reverse=True)
    heads = [
        f"{bandwidth_text(each)}: {what}" for what in ("examples/s", "seconds to the accuracy") for each in bandwidths
    ]
    lines = [f"| median (95 %) | {' | '.join(heads)} |", f"|{'---|' * (len(heads) + 1)}"]
    for name, rows in figures.items():
        cells = [
            _median(rows.get(each, {}).get(key, ()), form)
            for key, form in (("examples_per_second", ".0f"), ("seconds_to_accuracy", ".1f"))
            for each in bandwidths
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def bandwidth_text(mbit: str) -> str:
    number = float(mbit)
    return f"{number / 1000:g} Gbit/s" if number >= 1000 else f"{number:g} Mbit/s"


def accuracy_table(figures: Accuracy) -> list[str]:
    """A test figure after equal examples and after equal seconds: mean and standard deviation over seeds."""
    lines = [
        "| network | setting | after equal examples: mean ± deviation | after equal seconds | seeds |",
        "|---|---|---|---|---|",
    ]
    for network, settings in figures.items():
        for setting, found in settings.items():
            cells = [_mean(found["equal_examples"]), _mean(found["equal_seconds"]), str(len(found["equal_examples"]))]
            lines.append(f"| {network} | {setting} | {' | '.join(cells)} |")
    return lines


def _median(values: Sequence[float], form: str) -> str:
    return intervals.median(values).text(form) if values else "not reached"


def _mean(values: Sequence[float]) -> str:
    spread = f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4f}{spread}"
