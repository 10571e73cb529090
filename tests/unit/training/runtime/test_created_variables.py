"""What the user's code creates is noted in its order, and a model draws from a generator of its own."""

import random

import keras
import numpy as np
import tensorflow as tf

from trainer.training.runtime import created_variables


def test_variables_are_noted_in_their_order_and_those_that_nobody_holds_are_gone() -> None:
    created = created_variables.Created()
    with created.noting():
        first = tf.Variable(1.0)
        keras.Variable(2.0)
        layer = keras.layers.Dense(3)
        layer.build((None, 2))
    tf.Variable(9.0)
    alive = created.alive()
    assert len(alive) == 4
    assert alive[0] is first
    assert alive[1] is None
    assert [tuple(v.shape) for v in alive[2:] if v is not None] == [(2, 3), (3,)]


def test_a_model_draws_from_its_own_generator_whose_creation_draws_nothing_of_the_program() -> None:
    models = []
    for _ in range(2):
        keras.utils.set_random_seed(5)
        model, created = keras.Sequential([keras.layers.Dense(1)]), created_variables.Created()
        with created.noting():
            created_variables.note(model, created, declares_inputs=False)
        models.append(model)
        assert len(created_variables.of(model)) == 1
    after = random.random()
    keras.utils.set_random_seed(5)
    keras.Sequential([keras.layers.Dense(1)])
    assert after == random.random()

    def draw(model: keras.Model) -> float:
        with created_variables.drawing(model):
            return float(np.array(keras.random.normal(())))

    first = [draw(models[0]), draw(models[0])]
    assert first[0] != first[1]
    assert [draw(models[1]), draw(models[1])] == first
