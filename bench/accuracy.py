"""`make bench-accuracy`: what each setting of communication makes of a network, after equal examples and equal seconds.

    python -m bench.accuracy [NETWORK ...] [--seeds N] [--settings SETTING ...] [--smoke]

A setting is run once for each seed, longer than float32 by as much as it may be faster; its figures are those of its
weights after the examples of float32, and after the seconds that float32 took for them. What runs again replaces what
was there; all other results stay.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Sequence
from typing import Any

from bench import learning, section
from bench.learning import KEEP_STEPS, Run
from bench.throughput import MWMS, PS

STEPS = {"cnn": 300, "resnet": 480, "transformer": 150}
"""Of float32, by network."""
LONGER = 1.5
"""No setting is faster than that: float32 reaches 0.7 or more of what independent processes do."""
NAMES = {
    "cnn": "CNN, 1.66 million parameters, MNIST",
    "resnet": "ResNet with batch normalisation, small digits in noise",
    "transformer": "transformer, next symbol of a Markov chain",
}
KEYS = ("equal_examples", "equal_seconds")
FLOAT = "float32"
SETTINGS: dict[str, tuple[str, dict[str, Any]]] = {
    FLOAT: (MWMS, {}),
    "bfloat16": (MWMS, {"gradients": "bfloat16"}),
    "powersgd": (MWMS, {"gradients": "powersgd"}),
    "every10": (MWMS, {"every": 10}),
    "every30": (MWMS, {"every": 30}),
    "every30-outer": (MWMS, {"every": 30, "outer": {}}),
    "warmup-every10": (MWMS, {"every": 10, "warmup_steps": 90}),
    "parameter_server": (PS, {}),
    "ps-bfloat16": (PS, {"gradients": "bfloat16", "weights": "bfloat16"}),
    "ps-every10": (PS, {"every": 10}),
}

Figures = dict[str, dict[str, dict[str, list[float]]]]
"""By network and setting: lists of figures by seed."""


def measure(networks: Sequence[str], settings: Sequence[str], seeds: int, known: Figures, *, smoke: bool) -> Figures:
    """Adds to what is known; float32 is always run, because the others are compared with it."""
    wanted = [FLOAT, *(name for name in settings if name != FLOAT)]
    for network in networks:
        steps = KEEP_STEPS if smoke else STEPS[network]
        found: dict[str, dict[str, list[float]]] = {name: {key: [] for key in KEYS} for name in wanted}
        for seed in range(1, seeds + 1):
            seconds = 0.0
            for name in wanted:
                strategy, communication = SETTINGS[name]
                most = steps if name == FLOAT else _kept(steps * LONGER)
                with learning.trained(network, strategy, communication, most, seed) as made:
                    seconds = steps * made.seconds if name == FLOAT else seconds
                    reached = min(seconds / made.seconds, float(most))
                    pair = made.figure(steps), _between(made, reached)
                for key, figure in zip(KEYS, pair, strict=True):
                    found[name][key].append(figure)
                text = f"{pair[0]:.4f} after equal examples, {pair[1]:.4f} after equal seconds"
                print(f"  {network}, {name}, seed {seed}: {text} ({reached / steps:.2f} of the examples)", flush=True)
        known = {**known, network: {**known.get(network, {}), **found}}
    return known


def _kept(steps: float) -> int:
    return round(steps / KEEP_STEPS) * KEEP_STEPS


def _between(made: Run, step: float) -> float:
    """The figure at a step, of the weights before and after it."""
    before = max(KEEP_STEPS, int(step) // KEEP_STEPS * KEEP_STEPS)
    share = max(0.0, (step - before) / KEEP_STEPS)
    first = made.figure(before)
    return first + share * (made.figure(before + KEEP_STEPS) - first) if share else first


def table(figures: Figures) -> list[str]:
    lines = [
        "| share of the test data that is right | setting | after equal examples: mean | standard deviation "
        "| after equal seconds: mean | standard deviation | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for network, by_setting in figures.items():
        for name, each in by_setting.items():
            cells = [_mean(each[key]) for key in KEYS]
            lines.append(f"| {NAMES[network]} | `{name}` | {' | '.join(cells)} | {len(each['equal_examples'])} |")
    return lines


def _mean(values: Sequence[float]) -> str:
    """Two cells."""
    spread = f"{statistics.stdev(values):.4f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.4f} | {spread}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.accuracy", description="see bench/accuracy.py")
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"of {', '.join(STEPS)}; default all")
    parser.add_argument("--seeds", type=int, default=5, help="of each setting (5)")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=[*SETTINGS], help="default all")
    parser.add_argument("--smoke", action="store_true", help="everything once, short; writes nothing")
    arguments = parser.parse_args()
    if unknown := set(arguments.networks) - set(STEPS):
        parser.error(f"{', '.join(unknown)}: networks are {', '.join(STEPS)}")
    networks, seeds = arguments.networks or [*STEPS], 1 if arguments.smoke else arguments.seeds
    known: Figures = {} if arguments.smoke else section.read("accuracy")
    for network in networks:
        known = measure([network], arguments.settings, seeds, known, smoke=arguments.smoke)
        if not arguments.smoke:
            section.write("accuracy", known, table)
    print("\n".join(table(known)))


if __name__ == "__main__":
    main()
