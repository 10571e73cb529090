"""Where the time of each task's steps goes, and which task makes the others slow, and why.

Tasks send totals: steps, and the seconds of these in which they waited for data, computed, and exchanged values with
other tasks. Here they are compared over a sliding window. Tasks that train in sync end their exchange together, so the
one that arrives last exchanges for the shortest time: that is what the network takes, and what the others take longer
is their wait for it. Clocks of different machines are never compared.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import inf, isnan, nan
from typing import NamedTuple

from trainer.protocol.status import Cause, Shares, Straggler, TaskRow

SAMPLE_SECONDS = 2.0
"""Time between two samples, of up to SAMPLE_SECONDS * TASKS_A_SECOND tasks."""
TASKS_A_SECOND = 600
"""Samples of more tasks are as rare as their reports (peers.py): 3,000 tasks take the chief 50 ms each time."""
WINDOW_SECONDS = 20.0
"""Length of the window of steps that are compared. With the reports' delay a task is named within 30 s after it has
become slow."""
FIRST_SECONDS = 12.0
"""Length of steps before the first verdict, once training or a generation has begun."""
FEWEST = 6
"""Samples of a window. If steps are slow it takes longer than WINDOW_SECONDS."""
SLOW, SLOW_ALONE = 1.3, 1.5
"""How many times as long as the others' median its own part of a step is. Tasks of a busy machine differ by 1.2 for
minutes. Ps-workers, which wait for no other, differ more, and a slow one costs less: its own steps only."""
ERRORS = 3.0
"""Standard errors of that difference that it is reduced by before: a single pause, as of a garbage collection, or steps
that take now longer and now shorter, are chance."""
WAITED = 0.15
"""The share of their time that the others wait for it, from which on it matters."""
LONG_SECONDS = 0.002
"""How much longer its steps are at least: those of tiny models take less in all."""
REMAINS = 0.5
"""Factor of these thresholds for a task that is named already: one near them is not named again and again."""
READS = 0.5
"""A ps-worker's steps read the variables while they compute, and send gradients of the same size, which is part of
their exchange: if they compute longer by at most the exchange's excess divided by this, the network is the cause."""
CAUSES: tuple[Cause, ...] = ("input", "compute", "network")
_TEXTS = (
    "its steps wait {} for data, the others' {}",
    "its steps compute for {}, the others' for {}",
    "its steps exchange values with the ps for {}, the others' for {}",
)


class Sample(NamedTuple):
    """Totals of a task's child; NaN if unknown."""

    time: float
    generation: int
    steps: float
    input: float
    compute: float
    exchange: float
    between: float


class Cost(NamedTuple):
    """Seconds per step, in the order of CAUSES; NaN if unknown."""

    input: float
    compute: float
    exchange: float


Windows = Mapping[str, Sequence[Sample]]
"""The samples of each task, the oldest first."""


def sample(row: TaskRow, now: float) -> Sample | None:
    """The totals in a task's row; None if it makes no steps."""
    if row.steps_made is None or row.seconds_compute is None or row.seconds_wait is None:
        return None
    waited, exchange = (nan if each is None else each for each in (row.seconds_input, row.seconds_exchange))
    return Sample(now, row.generation, row.steps_made, waited, row.seconds_compute, exchange, row.seconds_wait)


def kept(samples: Sequence[Sample], new: Sample | None) -> Sequence[Sample]:
    """A window with one more sample, and without those that are no longer needed.

    Only samples with new steps count, so that it is longer if steps are slow. It begins again when the totals do.
    """
    if new is None:
        return []
    last = samples[-1] if samples else None
    if last is None or new.generation != last.generation or _begins_again(last, new):
        return [new]
    if new.steps == last.steps:
        return samples
    first = 0
    while len(samples) - first >= FEWEST and new.time - samples[first + 1].time >= WINDOW_SECONDS:
        first += 1
    return [*samples[first:], new]


def shares(windows: Windows, in_sync: bool) -> dict[str, Shares]:
    """Of each task the shares of its time, which add up to 1.

    Args:
        in_sync: whether the tasks exchange their gradients with each other, and not with ps.
    """
    costs = {name: _cost(samples) for name, samples in windows.items() if len(samples) > 1}
    least = min((cost.exchange for cost in costs.values() if not isnan(cost.exchange)), default=nan)
    shares_by_task = {}
    for name, cost in costs.items():
        first, last = windows[name][0], windows[name][-1]
        between = (last.between - first.between) / (last.steps - first.steps)
        network = least if in_sync and not isnan(cost.exchange) else cost.exchange
        parts = (cost.input, cost.compute, cost.exchange - network, network, between)
        seconds = sum(part for part in parts if not isnan(part))
        shares_by_task[name] = Shares(
            *(None if isnan(part) or not 0 < seconds < inf else part / seconds for part in parts)
        )
    return shares_by_task


def verdict(windows: Windows, in_sync: bool, before: Straggler | None = None) -> Straggler | None:
    """The task that is slow in all of the window; None if none is, or if all are slow alike.

    Args:
        before: the verdict so far, which stays while the task remains slow and no other is slower by far.
    """
    complete = {
        name: samples
        for name, samples in windows.items()
        if len(samples) >= FEWEST and samples[-1].time - samples[0].time >= FIRST_SECONDS
    }
    costs = {name: _cost(samples) for name, samples in complete.items()}
    if in_sync:
        costs = {name: cost for name, cost in costs.items() if not isnan(cost.input) and not isnan(cost.exchange)}
    else:
        costs = {name: Cost(*(0.0 if isnan(part) else part for part in cost)) for name, cost in costs.items()}
    if len(costs) < 2:
        return None
    slowest = max(costs, key=lambda name: _own(costs[name], in_sync))
    error = ERRORS * _error(complete, slowest, in_sync) if _is_slow(costs, slowest, in_sync) else 0.0
    if before is not None and before.task in costs:
        slower = _own(costs[slowest], in_sync) - error >= SLOW * _own(costs[before.task], in_sync)
        if not slower and _is_slow(costs, before.task, in_sync, of_threshold=REMAINS):
            return _named(costs, before.task, in_sync, before.cause)
    return _named(costs, slowest, in_sync) if _is_slow(costs, slowest, in_sync, error) else None


def _begins_again(last: Sample, new: Sample) -> bool:
    return any(isnan(before) != isnan(after) or after < before for before, after in zip(last, new, strict=True))


def _cost(samples: Sequence[Sample]) -> Cost:
    """Of two samples or more."""
    first, last = samples[0], samples[-1]
    steps = last.steps - first.steps
    return Cost(
        (last.input - first.input) / steps,
        (last.compute - first.compute) / steps,
        (last.exchange - first.exchange) / steps,
    )


def _own(cost: Cost, in_sync: bool) -> float:
    """The part of a step that is the task's own; of a ps-worker all of it."""
    parts = (cost.input, cost.compute) if in_sync else cost
    return sum(part for part in parts if not isnan(part))


def _usual(costs: Mapping[str, Cost], task: str) -> Cost:
    """The medians of the other tasks."""
    others = [cost for name, cost in costs.items() if name != task]
    return Cost(*(statistics.median(parts) for parts in zip(*others, strict=True)))


def _error(windows: Windows, task: str, in_sync: bool) -> float:
    """The standard error of the difference between a task's own part of a step and the others'."""

    def of_mean(samples: Sequence[Sample]) -> float:
        means = [_own(_cost(pair), in_sync) for pair in pairwise(samples)]
        return statistics.stdev(means) / math.sqrt(len(means))

    others = statistics.median(of_mean(samples) for name, samples in windows.items() if name != task)
    return math.hypot(of_mean(windows[task]), others)


def _is_slow(
    costs: Mapping[str, Cost], task: str, in_sync: bool, error: float = 0.0, of_threshold: float = 1.0
) -> bool:
    """Whether a task is slower than the others, also without what may be chance, and they wait for it.

    Args:
        error: of its own part of a step.
        of_threshold: the part of the thresholds that suffices.
    """
    own, usual = _own(costs[task], in_sync) - error, _own(_usual(costs, task), in_sync)
    slow = 1 + of_threshold * ((SLOW if in_sync else SLOW_ALONE) - 1)
    if own < slow * usual or own - usual < of_threshold * LONG_SECONDS:
        return False
    return not in_sync or _waits(costs, task) >= of_threshold * WAITED


def _waits(costs: Mapping[str, Cost], task: str) -> float:
    """The share of their steps that the others wait, as the median of them."""
    least = min(cost.exchange for cost in costs.values())
    others = [(cost.exchange - least) / (sum(cost) or 1.0) for name, cost in costs.items() if name != task]
    return statistics.median(others)


def _named(costs: Mapping[str, Cost], task: str, in_sync: bool, cause: Cause | None = None) -> Straggler:
    """
    Args:
        cause: that of the verdict before, which stays if none is clearer.
    """
    usual = _usual(costs, task)
    longer = [max(0.0, own - others) for own, others in zip(costs[task], usual, strict=True)]
    if in_sync:
        longer[2] = 0.0
    elif longer[2] >= READS * longer[1]:
        longer[2] += longer[1]
    i = longer.index(max(longer))
    if cause is not None and longer[CAUSES.index(cause)] > REMAINS * longer[i]:
        i = CAUSES.index(cause)
    why = _TEXTS[i].format(_duration(costs[task][i]), _duration(usual[i]))
    if in_sync:
        effect = f"the others wait for it {100 * _waits(costs, task):.0f} % of their time"
    else:
        effect = f"a step takes it {_duration(sum(costs[task]))}, the others {_duration(sum(usual))}"
    return Straggler(task, CAUSES[i], f"{task} is slow: {why}; {effect}")


def _duration(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1000 * seconds:.3g} ms"


class Stragglers:
    """Looks at the rows of a job at intervals."""

    def __init__(self, in_sync: bool) -> None:
        self.shares: Mapping[str, Shares] = {}
        self.straggler: Straggler | None = None
        self._in_sync, self._looked = in_sync, float("-inf")
        self._windows: dict[str, Sequence[Sample]] = {}

    def due(self, now: float) -> bool:
        return now - self._looked >= max(SAMPLE_SECONDS, len(self._windows) / TASKS_A_SECOND)

    def look(self, rows: Mapping[str, TaskRow], now: float) -> str | None:
        """Takes a sample; returns what is to be noted of the job: another straggler or cause, or that it is over."""
        self._looked, before = now, self.straggler
        self._windows = {name: kept(self._windows.get(name, ()), sample(row, now)) for name, row in rows.items()}
        self.shares = shares(self._windows, self._in_sync)
        self.straggler = after = verdict(self._windows, self._in_sync, before)
        if after is not None:
            same = before is not None and (before.task, before.cause) == (after.task, after.cause)
            return None if same else after.text
        return f"{before.task} is no longer slow" if before is not None else None
