from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training import models
from trainer.training.model.step_trace import TrainStep, trace
from trainer.training.private import keras_private, tensorflow_patches

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
BATCH = (tf.TensorSpec((16, 8), tf.float32), tf.TensorSpec((16,), tf.int32))


def traced(model: Any, watched: Any = ()) -> TrainStep:
    model.built = True
    keras_private.build_compiled(model, BATCH)
    variables = [v for metric in model.metrics for v in metric.variables]
    return trace(tf.distribute.get_strategy(), model, BATCH, variables, [np.zeros(v.shape) for v in variables], watched)


def names(variables: list[Any]) -> set[str]:
    return {v.path.rpartition("/")[2] for v in variables}


def test_a_trace_shows_all_optimizers_in_their_order_with_their_variables_and_builds_none() -> None:
    model = models.adversarial()
    before = [np.array(v) for v in model.variables]
    found = traced(model)
    (first, judged), (second, made) = found.optimizers
    assert (first, second) == (model.d_optimizer, model.g_optimizer)
    assert [len(judged), len(made)] == [4, 2]
    assert [first.built, second.built, model.optimizer.built] == [False] * 3
    assert set(found.returned) == {"d_loss", "g_loss"}
    assert all((b == np.array(v)).all() for b, v in zip(before, model.variables, strict=True))


def test_afterwards_optimizers_update_again() -> None:
    traced(models.autoencoder())
    variable, optimizer = keras.Variable([4.0]), keras.optimizers.SGD(0.5)
    optimizer.apply([tf.constant([1.0])], [variable])
    assert variable.numpy().tolist() == [3.5]
    assert "apply" not in vars(keras.optimizers.Optimizer)


def test_metrics_that_are_not_updated_are_found() -> None:
    model = models.distiller()
    found = traced(model)
    variables = [v.path for metric in model.metrics for v in metric.variables]
    assert {variables[i] for i in found.changed} == {"accuracy/total", "accuracy/count"}, "and not those of loss"


def test_arguments_of_a_metric_are_known_by_shape() -> None:
    metric = models.Largest()
    model = models.plain(metrics=[metric])
    (args, kwargs) = traced(model, [metric]).arguments[id(metric)]
    assert [spec.shape.as_list() for spec in args] == [[16], [16, 1]]
    assert kwargs == {"sample_weight": None}
    assert "update_state" not in vars(metric)


class Greedy(models.Autoencoder):
    """Applies an optimizer to two parts, one after the other."""

    def train_step(self, data: Any) -> Any:
        for part in (self.encoder, self.decoder):
            with tf.GradientTape() as tape:
                loss = self.optimizer.scale_loss(keras.ops.mean(self.decoder(self.encoder(data[0]))))
            self.optimizer.apply(tape.gradient(loss, part.trainable_weights), part.trainable_weights)
        return {"loss": loss}


def test_an_optimizer_that_is_applied_twice_updates_the_variables_of_both() -> None:
    model = Greedy()
    model.compile("sgd")
    found = traced(model)
    ((optimizer, variables),) = found.optimizers
    assert optimizer is model.optimizer
    assert len(found.updates) == 2
    assert len(found.scaled) == 2
    assert len(variables) == 4


@pytest.mark.parametrize("depth", [1, 2])
def test_a_train_step_sees_one_replica_and_the_rest_sees_all(depth: int) -> None:
    strategy = tf.distribute.experimental.CentralStorageStrategy(["CPU:0", "CPU:0"], "CPU:0")
    assert strategy.num_replicas_in_sync == 2
    with tensorflow_patches.as_one_replica():
        if depth == 2:
            with tensorflow_patches.as_one_replica():
                pass
        assert strategy.num_replicas_in_sync == 1
        with strategy.scope():
            loss = keras.losses.MeanSquaredError()(np.ones(4), np.zeros(4))
    assert float(loss) == 1.0, "Keras divides it by 2 otherwise"
    assert strategy.num_replicas_in_sync == 2


def test_an_optimizer_with_an_apply_of_its_own_is_found() -> None:
    model = models.Autoencoder()
    model.compile(models.Centralized(0.1))
    own = models.Centralized.apply
    ((optimizer, variables),) = traced(model).optimizers
    assert (optimizer, len(variables)) == (model.optimizer, 4)
    assert models.Centralized.apply is own
