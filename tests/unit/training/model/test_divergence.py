import math
import re
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from trainer.job.errors import Exit, TrainerError
from trainer.training.inputs import Arrays
from trainer.training.model.divergence import raise_if_not_finite

GOOD = Arrays((tf.ones([4, 2]), tf.range(4)))

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


@pytest.mark.parametrize(
    ("losses", "step"), [([0.1, math.nan], 12), ([math.inf, math.nan], 11), ([0.1, -math.inf], 12)]
)
def test_a_loss_that_is_not_finite_is_reported_with_its_step(losses: list[float], step: int) -> None:
    raise_if_not_finite(np.array([0.1, 1e30]), 10, GOOD)
    with pytest.raises(TrainerError, match=rf"^the loss is \S+ at step {step}; lower the learning rate, ") as caught:
        raise_if_not_finite(np.array(losses), 10, GOOD)
    assert caught.value.code is Exit.DIVERGED


def with_bad(*rows: int) -> tf.Tensor:
    values = np.ones((9, 2, 3), "float32")
    values[list(rows), 1, 2] = math.inf
    return tf.constant(values)


DATA = {
    "of x": ((with_bad(7), tf.range(9)), "row 7 of x in the data is not finite (there is 1 such row)"),
    "several": ((with_bad(5, 3, 8), tf.range(9)), "row 3 of x in the data is not finite (there are 3 such rows)"),
    "of a dict": (({"a": tf.range(9), "b": with_bad(0)}, tf.range(9)), "row 0 of x in the data"),
    "of a label": ((tf.range(9), with_bad(2)), "row 2 of y in the data"),
    "of a weight": ((tf.range(9), tf.range(9), with_bad(4)), "row 4 of sample_weight in the data"),
}


@pytest.mark.parametrize(("parts", "named"), DATA.values(), ids=DATA)
def test_a_row_of_the_data_that_is_not_finite_is_named(parts: tuple[Any, ...], named: str) -> None:
    with pytest.raises(TrainerError, match=re.escape(f"the loss is nan at step 11; {named}")):
        raise_if_not_finite(np.array([math.nan]), 10, Arrays(parts))
