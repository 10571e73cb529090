"""Medians with intervals, by the bootstrap: turns are drawn again, with replacement. Needs NumPy alone, for plot.py."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

RESAMPLES, LEVEL = 10_000, 0.95


class Interval(NamedTuple):
    """A median, and where it lies in LEVEL of the resamples."""

    median: float
    low: float
    high: float

    def text(self, form: str = ".2f") -> str:
        """1.16 (1.12 to 1.21)"""
        return f"{self.median:{form}} ({self.low:{form}} to {self.high:{form}})"


def median(values: Sequence[float]) -> Interval:
    """Of a figure by turn."""
    return _interval(float(np.median(values)), _medians(values, np.random.default_rng(0)))


def ratio(one: Sequence[float], other: Sequence[float]) -> Interval:
    """How many times as much one is as the other. A ratio compares what was measured in the same turn."""
    return median([a / b for a, b in zip(one, other, strict=True)])


def change(now: Sequence[float], before: Sequence[float]) -> Interval:
    """The ratio of the medians of two runs, which have no turns in common: each is drawn for itself."""
    generator = np.random.default_rng(0)
    return _interval(float(np.median(now) / np.median(before)), _medians(now, generator) / _medians(before, generator))


def _medians(values: Sequence[float], generator: np.random.Generator) -> npt.NDArray[np.float64]:
    drawn = generator.integers(len(values), size=(RESAMPLES, len(values)))
    return np.asarray(np.median(np.asarray(values)[drawn], axis=1))


def _interval(middle: float, resampled: npt.NDArray[np.float64]) -> Interval:
    low, high = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(middle, float(low), float(high))
