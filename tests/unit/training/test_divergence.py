import math

import numpy as np
import pytest

from trainer.job.errors import Exit, TrainerError
from trainer.training.divergence import raise_if_not_finite

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


@pytest.mark.parametrize(
    ("losses", "step"), [([0.1, math.nan], 12), ([math.inf, math.nan], 11), ([0.1, -math.inf], 12)]
)
def test_a_loss_that_is_not_finite_is_reported_with_its_step(losses: list[float], step: int) -> None:
    raise_if_not_finite(np.array([0.1, 1e30]), 10)
    with pytest.raises(TrainerError, match=rf"^the loss is \S+ at step {step}; lower train\.learning_rate") as caught:
        raise_if_not_finite(np.array(losses), 10)
    assert caught.value.code is Exit.DIVERGED
