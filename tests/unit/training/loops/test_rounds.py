"""When rounds of local steps begin and end. Their arithmetic: tests/local/test_communication.py."""

from __future__ import annotations

import keras
import numpy as np
import pytest

from trainer.job.spec import Communication
from trainer.training.loops.rounds import local, steps_left
from trainer.training.private import keras_private


@pytest.mark.parametrize(
    ("given", "step", "is_local", "left"),
    [
        (Communication(), 0, False, 1),
        (Communication(every=10), 0, True, 10),
        (Communication(every=10), 9, True, 1),
        (Communication(every=10), 10, True, 10),
        (Communication(every=10, warmup_steps=25), 0, False, 25),
        (Communication(every=10, warmup_steps=25), 24, False, 1),
        (Communication(every=10, warmup_steps=25), 25, True, 10),
        (Communication(every=10, warmup_steps=25), 44, True, 1),
    ],
)
def test_rounds_follow_the_steps_in_sync(given: Communication, step: int, is_local: bool, left: int) -> None:
    assert (local(given, step), steps_left(given, step)) == (is_local, left)


@pytest.mark.parametrize(
    ("optimizer", "count"),
    [
        (keras.optimizers.Adam(), 4),
        (keras.optimizers.SGD(), 0),
        (keras.optimizers.SGD(momentum=0.5), 2),
        (keras.optimizers.Ftrl(), 4),
    ],
)
def test_an_optimizer_keeps_slots_beside_its_counter_and_rate(
    optimizer: keras.optimizers.Optimizer, count: int
) -> None:
    weights = [keras.Variable(np.ones((3, 2), np.float32)), keras.Variable(np.ones(2, np.float32))]
    optimizer.build(weights)
    slots = keras_private.slots(optimizer)
    assert sorted(tuple(v.shape) for v in slots) == sorted([(3, 2), (2,)] * (count // 2))
