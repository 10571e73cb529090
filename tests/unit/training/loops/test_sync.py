"""What the synchronous loop decides; the loop itself runs in tests/local."""

import pytest

from trainer.training.loops.sync import _affordable


@pytest.mark.parametrize(
    ("pace", "steps"), [(0.0, 1), (1e-3, 2000), (0.2, 10), (0.21, 9), (1.2, 1), (1.0, 2), (2.1, 1), (100.0, 1)]
)
def test_a_call_takes_a_quarter_of_the_time_to_stop_or_one_step(pace: float, steps: int) -> None:
    assert _affordable(pace, 8.0) == steps
