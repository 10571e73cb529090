"""Against independent computations: all resamples of a few turns, and what a large sample's interval must be."""

from __future__ import annotations

import itertools
import random
import statistics

import pytest

from bench import intervals


def exact(values: list[float], share: float) -> float:
    """The quantile of the medians of all resamples there are, each once."""
    medians = sorted(statistics.median(drawn) for drawn in itertools.product(values, repeat=len(values)))
    return medians[int(share * (len(medians) - 1))]


@pytest.mark.parametrize(
    "values", [[3.0, 1.0, 2.0], [0.79, 0.82, 0.80, 0.81], [5.0, 1.0, 4.0, 2.0, 9.0], [1.0, 1.0, 1.0, 7.0, 1.0, 1.1]]
)
def test_the_interval_of_a_median_is_that_of_all_resamples(values: list[float]) -> None:
    found = intervals.median(values)
    assert found == pytest.approx((statistics.median(values), exact(values, 0.025), exact(values, 0.975)))


def test_an_interval_of_many_turns_is_as_wide_as_theory_says() -> None:
    """The standard error of a normal distribution's median is its deviation times sqrt(pi / 2 n)."""
    dice = random.Random(5)
    count, deviation = 4001, 3.0
    found = intervals.median([dice.gauss(100, deviation) for _ in range(count)])
    error = deviation * (3.14159 / 2 / count) ** 0.5
    assert found.high - found.low == pytest.approx(2 * 1.96 * error, rel=0.2)
    assert found.low < found.median < found.high


def test_a_ratio_compares_within_turns() -> None:
    slow, fast = [100.0, 50.0, 200.0, 75.0], [130.0, 65.0, 260.0, 97.5]  # the machine's speed changes fourfold
    assert intervals.ratio(fast, slow) == pytest.approx((1.3, 1.3, 1.3))
    with pytest.raises(ValueError, match="shorter"):
        intervals.ratio(fast, slow[:3])


def test_a_change_between_runs_is_wider_than_either_interval() -> None:
    """Against every pair of resamples of the two runs, which share no turns."""
    now, before = [1.0, 1.1, 1.3], [2.0, 2.1, 2.6]
    pairs = itertools.product(itertools.product(now, repeat=3), itertools.product(before, repeat=3))
    all_ratios = sorted(statistics.median(a) / statistics.median(b) for a, b in pairs)
    found = intervals.change(now, before)
    assert found.median == pytest.approx(1.1 / 2.1)
    assert found.low == pytest.approx(all_ratios[int(0.025 * len(all_ratios))], rel=0.01)
    assert found.high == pytest.approx(all_ratios[int(0.975 * len(all_ratios))], rel=0.01)


def test_the_text_of_an_interval() -> None:
    assert intervals.Interval(1.158, 1.12, 1.2051).text() == "1.16 (1.12 to 1.21)"
    assert intervals.Interval(0.57, 0.544, 0.6).text(".0%") == "57% (54% to 60%)"
