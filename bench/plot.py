"""Draws the kept results as docs/plots/*.svg, each for light and dark pages. It runs in the environment of the peers:
matplotlib is there and not beside TensorFlow, because Keras imports it where it is installed, 0.9 s at the start of
each task.

    .venv-peers/bin/python -m bench.plot
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib

matplotlib.use("agg")

import numpy as np
from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter, LogLocator

from bench import intervals

RESULTS = Path(__file__).parent / "results"
PLOTS = Path(__file__).parents[1] / "docs" / "plots"
IDEAL = "2 independent processes"


class Colors(NamedTuple):
    """Of Okabe and Ito, which the colour-blind can tell apart, lighter on dark pages."""

    page: str
    text: str
    faint: str
    ours: str
    peers: str
    series: Sequence[str]


THEMES = {
    "light": Colors(
        "#ffffff", "#1f2328", "#d0d7de", "#0072b2", "#9aa0a6",
        ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#7a5c00", "#56b4e9", "#555555"),
    ),
    "dark": Colors(
        "#0d1117", "#e6edf3", "#30363d", "#56b4e9", "#7d8590",
        ("#56b4e9", "#e69f00", "#00c08b", "#cc79a7", "#f0e442", "#a5d6ff", "#b0b0b0"),
    ),
}  # fmt: skip
MARKERS = "os^Dvph"

Result = Mapping[str, Any]


def main() -> None:
    PLOTS.mkdir(exist_ok=True)
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "trainer", "font.size": 10})
    matplotlib.rcParams["font.sans-serif"] = ["DejaVu Sans", "Verdana", "Arial"]
    for part, draw in DRAWN.items():
        results = [json.loads(path.read_text()) for path in sorted(RESULTS.glob(f"{part}-*.json"))]
        results = [each for each in results if part != "network" or _reached(each["figures"])]
        for theme, colors in THEMES.items() if results else ():
            style = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), colors.text)
            style |= {"axes.edgecolor": colors.faint, "figure.facecolor": colors.page, "axes.facecolor": colors.page}
            with matplotlib.rc_context(style):
                figure = draw(results, colors)
                figure.savefig(PLOTS / f"{part}-{theme}.svg", metadata={"Date": None})
                pyplot.close(figure)


def throughput(results: Sequence[Result], colors: Colors) -> Any:
    """Bars of each contender's share of the ideal pair, with the interval."""
    names = [name for name in _names(results) if name != IDEAL and not name.startswith("one core")]
    figure, panels = _panels(len(results), (9.5, 1.0 + 0.27 * len(names)))
    for axes, result in zip(panels, results, strict=True):
        rates = result["figures"]
        for row, name in enumerate(names):
            if name not in rates:
                axes.text(0.02, row, "not measured", va="center", fontsize=8, alpha=0.7)
                continue
            share = intervals.ratio(rates[name], rates[IDEAL])
            color = colors.ours if "trainer" in name else colors.peers
            error = [[share.median - share.low], [share.high - share.median]]
            axes.barh(row, share.median, 0.72, color=color, xerr=error, error_kw=_error(colors))
            axes.text(1.04, row, f"{share.median:.2f}", va="center", fontsize=9)
        axes.axvline(1, color=colors.text, lw=1, ls=":")
        axes.set(xlim=(0, 1.16), xticks=[0, 0.25, 0.5, 0.75, 1], title=_machine(result))
        _only_bars(axes, names)
    figure.supxlabel("examples/s, as a share of two processes that do not communicate (dotted)", fontsize=10)
    bars = [pyplot.Rectangle((0, 0), 1, 1, color=color) for color in (colors.ours, colors.peers)]
    figure.legend(bars, ["trainer", "others"], loc="outside upper left", ncols=2, frameon=False)
    return figure


def steps(results: Sequence[Result], colors: Colors) -> Any:
    """Bars of a step's milliseconds, by what they are spent on."""
    parts = {"compute": "computing", "exchange": "exchange", "input": "data", "wait": "between steps"}
    names = _names(results)
    figure, panels = _panels(len(results), (9.5, 1.2 + 0.36 * len(names)))
    for axes, result in zip(panels, results, strict=True):
        for row, name in enumerate(names):
            turns, left = result["figures"].get(name, ()), 0.0
            for part, color in zip(parts, colors.series, strict=False):
                value = float(np.median([turn[part] for turn in turns])) if turns else 0.0
                axes.barh(row, value, 0.72, left=left, color=color, label=parts[part] if row == 0 else None)
                if value >= 4:
                    axes.text(left + value / 2, row, f"{value:.0f}", va="center", ha="center", color=colors.page)
                left += value
        axes.set(title=_machine(result), xlabel="milliseconds of a worker's step, 64 examples")
        _only_bars(axes, names)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(parts), frameon=False)
    return figure


def growth(results: Sequence[Result], colors: Colors) -> Any:
    """Lines of examples/s by the number of workers, beside those of the cores."""
    figure, panels = _panels(len(results), (9.5, 3.6))
    top = max(each["figures"][0]["examples_per_second"] * each["machine"]["cores"] for each in results)
    for axes, result in zip(panels, results, strict=True):
        rows, cores = result["figures"], result["machine"]["cores"]
        workers = [row["workers"] for row in rows]
        rates = [row["examples_per_second"] for row in rows]
        axes.plot(workers, [rates[0] * min(count, cores) for count in workers], "--", color=colors.peers)
        axes.plot(workers, rates, "o-", color=colors.ours, lw=2)
        for count, rate in zip(workers, rates, strict=True):
            axes.annotate(f"{rate:.0f}", (count, rate), (0, -14), textcoords="offset points", ha="center", fontsize=9)
        axes.text(workers[-1], rates[0] * cores, f"one worker's, times {cores} cores", ha="right", va="bottom")
        axes.text(workers[-1], rates[-1] + 0.04 * top, "measured", color=colors.ours, ha="right", va="bottom")
        axes.set_xscale("log", base=2)
        axes.set_xticks(workers, [str(count) for count in workers])
        axes.set(xlabel="workers", title=_machine(result), ylim=(0, 1.15 * top), xlim=(0.85, workers[-1] * 1.15))
        axes.title.set_fontsize(10)
        _no_frame(axes)
    panels[0].set_ylabel("examples/s, MWMS")
    return figure


def network(results: Sequence[Result], colors: Colors) -> Any:
    """Lines of the seconds to the accuracy, by bandwidth; a contender has the same color in all panels."""
    figure, panels = _panels(len(results), (9.5, 5))
    names = _names(results)
    for axes, result in zip(panels, results, strict=True):
        ends = []
        for index, name in enumerate(names):
            rows = result["figures"].get(name, {})
            reached = {float(mbit): each["seconds_to_accuracy"] for mbit, each in rows.items()}
            points = [
                (mbit, intervals.median(times)) for mbit, times in sorted(reached.items()) if times and all(times)
            ]
            if not points:
                continue
            middle = [each.median for _, each in points]
            error = [[each.median - each.low for _, each in points], [each.high - each.median for _, each in points]]
            color, marker = colors.series[index % len(colors.series)], MARKERS[index % len(MARKERS)]
            dashes = "-" if "trainer" in name else "--"
            axes.errorbar([mbit for mbit, _ in points], middle, error, color=color, marker=marker, ls=dashes, capsize=3)
            ends.append((points[0][0], middle[0], name, color))
        axes.set(xscale="log", yscale="log", xlabel="bandwidth", title=_machine(result))
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ticks = sorted({float(mbit) for rows in result["figures"].values() for mbit in rows})
        axes.set_xticks(ticks, [f"{tick / 1000:g} Gbit/s" if tick >= 1000 else f"{tick:g} Mbit/s" for tick in ticks])
        axes.minorticks_off()
        axes.invert_xaxis()
        _label_ends(axes, ends)
        _no_frame(axes)
    panels[0].set_ylabel("seconds to the accuracy")
    return figure


def _label_ends(axes: Any, ends: Sequence[tuple[float, float, str, str]]) -> None:
    """Names of lines at their right ends, moved apart where they would overlap."""
    low, high = (float(np.log(each)) for each in axes.get_ylim())
    gap, last = (high - low) / 22, -np.inf
    for x, y, name, color in sorted(ends, key=lambda end: end[1]):
        last = max(float(np.log(y)), last + gap)
        axes.annotate(
            name, (x, float(np.exp(last))), (8, 0), textcoords="offset points", color=color, va="center", fontsize=9
        )


def _names(results: Sequence[Result]) -> list[str]:
    """Of all rows, in the order of the result that has most."""
    most_first = sorted(results, key=lambda each: -len(each["figures"]))
    return list(dict.fromkeys(name for each in most_first for name in each["figures"]))


def _panels(count: int, size: tuple[float, float]) -> tuple[Any, Sequence[Any]]:
    """Side by side, a panel for each kind of CPU, with the same rows."""
    figure, panels = pyplot.subplots(1, count, figsize=size, sharey=True, squeeze=False, layout="constrained")
    return figure, list(panels[0])


def _only_bars(axes: Any, names: Sequence[str]) -> None:
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.title.set_fontsize(10)
    _no_frame(axes)


def _reached(figures: Mapping[str, Any]) -> bool:
    """Whether any contender is known to have reached the accuracy."""
    return any(each["seconds_to_accuracy"] for rows in figures.values() for each in rows.values())


def _no_frame(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)


def _error(colors: Colors) -> dict[str, Any]:
    return {"ecolor": colors.text, "elinewidth": 1, "capsize": 2.5}


def _machine(result: Result) -> str:
    on = result["machine"]
    return f"{on['cpu']}, {['other', *on['instructions']][-1]}"


DRAWN: dict[str, Callable[[Sequence[Result], Colors], Any]] = {
    "throughput": throughput,
    "steps": steps,
    "growth": growth,
    "network": network,
}


if __name__ == "__main__":
    main()
