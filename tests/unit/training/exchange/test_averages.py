from typing import Any

import keras
import pytest

from trainer.training.exchange.averages import updated_by_layers

layers = keras.layers


class Own(keras.layers.Layer):  # type: ignore[misc]
    """A weight, a statistic in float16 and a counter."""

    def build(self, _shape: Any) -> None:
        self.scale = self.add_weight(shape=(), name="scale")
        self.seen = self.add_weight(shape=(), trainable=False, dtype="float16", name="seen")
        self.calls = self.add_weight(shape=(), trainable=False, dtype="int64", initializer="zeros", name="calls")

    def call(self, x: Any) -> Any:
        return x * self.scale


def nested() -> keras.Model:
    return keras.Sequential([keras.Input((4,)), layers.BatchNormalization(name="inner")], name="nested")


# Each: layers, and the names of the variables that they update by themselves.
CASES: list[tuple[Any, list[str]]] = [
    (lambda: [layers.Dense(3), layers.Dropout(0.5)], []),
    (lambda: [layers.BatchNormalization(name="bn")], ["bn/moving_mean", "bn/moving_variance"]),
    (lambda: [layers.Dense(4, trainable=False), layers.Dense(3)], []),
    (lambda: [Own(name="own")], ["own/seen"]),
    (lambda: [Own(name="own", trainable=False)], ["own/seen"]),
    (lambda: [nested()], ["inner/moving_mean", "inner/moving_variance"]),
    (lambda: [layers.Normalization(name="norm")], ["norm/mean", "norm/variance"]),
]


@pytest.mark.parametrize(("parts", "names"), CASES)
def test_only_what_a_layer_may_update_by_itself(parts: Any, names: list[str]) -> None:
    model = keras.Sequential([keras.Input((4,)), *parts()])
    assert ["/".join(v.path.split("/")[-2:]) for v in updated_by_layers(model)] == names


def test_layers_that_are_frozen_after_they_were_built() -> None:
    model = keras.Sequential([keras.Input((4,)), layers.Dense(4, name="dense"), layers.Dense(2, name="last")])
    model.get_layer("dense").trainable = False
    assert len(model.non_trainable_variables) == 2
    assert updated_by_layers(model) == []


def test_a_shared_layer_counts_once() -> None:
    shared = layers.BatchNormalization()
    x = keras.Input((4,))
    assert len(updated_by_layers(keras.Model(x, shared(shared(x))))) == 2
