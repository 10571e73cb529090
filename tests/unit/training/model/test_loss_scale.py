import math
from typing import Any

import keras
import pytest
import tensorflow as tf

from trainer.job.errors import Exit, TrainerError
from trainer.training.model.loss_scale import MOST_SKIPS, LossScale, raise_if_stuck, skipped


@pytest.fixture
def scaled() -> tuple[LossScale, Any]:
    variable = keras.Variable([1.0, 2.0])
    optimizer = LossScale(keras.optimizers.SGD(1.0))
    optimizer.build([variable])
    return optimizer, variable


def apply(optimizer: LossScale, variable: Any, gradient: float, scale: float = 4.0) -> bool:
    return bool(optimizer.apply_if_finite([tf.constant([gradient, 0.0])], [variable], tf.constant(scale)))


def state(optimizer: LossScale) -> dict[str, float]:
    return {v.path.rpartition("/")[2]: float(v.numpy()) for v in optimizer.variables}


def test_gradients_are_divided_by_the_scale_of_their_loss(scaled: tuple[LossScale, Any]) -> None:
    optimizer, variable = scaled
    assert apply(optimizer, variable, 2.0)
    assert variable.numpy().tolist() == [0.5, 2.0]
    assert state(optimizer) == {
        "iteration": 1, "learning_rate": 1, "dynamic_scale": 2**15, "step_counter": 1, "skipped": 0,
        "skipped_in_a_row": 0,
    }  # fmt: skip


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_is_skipped_counted_and_halves_the_scale(scaled: tuple[LossScale, Any], bad: float) -> None:
    optimizer, variable = scaled
    assert apply(optimizer, variable, 2.0)
    assert not apply(optimizer, variable, bad)
    assert not apply(optimizer, variable, bad)
    assert variable.numpy().tolist() == [0.5, 2.0]
    assert state(optimizer) == {
        "iteration": 1, "learning_rate": 1, "dynamic_scale": 2**13, "step_counter": 0, "skipped": 2,
        "skipped_in_a_row": 2,
    }  # fmt: skip
    assert apply(optimizer, variable, 0.0)
    assert (state(optimizer)["skipped_in_a_row"], skipped(optimizer)) == (0, 2)


def test_the_scale_doubles_after_a_while_without_a_skip(scaled: tuple[LossScale, Any]) -> None:
    optimizer, variable = scaled
    optimizer.dynamic_growth_steps = 3
    for _ in range(3):
        assert apply(optimizer, variable, 0.0)
    assert (state(optimizer)["dynamic_scale"], state(optimizer)["step_counter"]) == (2**16, 0)


def test_a_job_that_only_skips_ends(scaled: tuple[LossScale, Any]) -> None:
    optimizer, variable = scaled
    for _ in range(MOST_SKIPS - 1):
        assert not apply(optimizer, variable, math.nan)
    raise_if_stuck(optimizer, 7)
    assert not apply(optimizer, variable, math.nan)
    expected = (
        rf"^train\.mixed_precision: float16: the gradients of {MOST_SKIPS} batches in a row after step 7 were not"
    )
    with pytest.raises(TrainerError, match=rf"{expected} finite, at last with a loss scale of 1;") as caught:
        raise_if_stuck(optimizer, 7)
    assert caught.value.code is Exit.DIVERGED


def test_other_optimizers_skip_nothing() -> None:
    other = keras.optimizers.SGD()
    raise_if_stuck(other, 1)
    assert skipped(other) is None
