from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.jobs import network, setup, step_of, with_data, with_workload
from trainer.job.cluster import tasks_of
from trainer.job.errors import UserError
from trainer.job.load import build
from trainer.protocol import events
from trainer.protocol.events import Event
from trainer.training import inputs
from trainer.training.model.checks import check, require_data_to_evaluate
from trainer.training.model.state import TrainState, build_state
from trainer.workloads.workload import Shard

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


class Lazy(keras.Model):  # type: ignore[misc]
    """Claims to be built, but creates the variables of a layer when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten, self.dense = keras.layers.Flatten(), keras.layers.Dense(10)

    def build(self, shape: Any) -> None:
        self.built = True

    def call(self, x: Any) -> Any:
        return self.dense(self.flatten(x))


def test_a_model_that_makes_its_variables_when_it_is_called_is_refused() -> None:
    lazy = with_workload(model=Lazy)
    built = TrainState(lazy.workload.model(), keras.optimizers.SGD())
    built.model.build((None, 8, 8))
    step = tf.function(step_of(lazy, built), autograph=False)
    with pytest.raises(
        UserError, match=r"^workload: digits: model\(\) must give a model with all its variables; begin"
    ):
        step((tf.zeros([2, 8, 8]), tf.zeros([2], tf.int32)))


def cross_entropy(y: Any, prediction: Any) -> Any:
    return keras.losses.sparse_categorical_crossentropy(y, prediction)


# Each: the end of a model, labels, loss, and the message: a warning, an error, or none.
FITS: list[tuple[list[Any], list[float], Any, str]] = [
    ([keras.layers.Dense(10)], [0, 9], None, ""),
    ([keras.layers.Dense(10, activation="softmax")], [0, 9], None, "the last layer has softmax, and the default loss"),
    ([keras.layers.Dense(10), keras.layers.Softmax()], [0, 9], None, "the last layer has softmax"),
    ([keras.layers.Dense(10), keras.layers.Activation("softmax")], [0, 9], None, "the last layer has softmax"),
    ([keras.layers.Dense(10, activation="sigmoid")], [0, 9], None, "the last layer has sigmoid"),
    ([keras.layers.Dense(10, activation="softmax")], [0, 9], cross_entropy, ""),
    ([keras.layers.Dense(10)], [0, 10], None, "labels are 0 to 10, and the last layer has 10 units"),
    ([keras.layers.Dense(10)], [-1, 9], None, "labels are -1 to 9, and the last layer has 10 units"),
    ([keras.layers.Dense(10)], [0.0, 9.0], None, ""),
    ([keras.layers.Dense(10)], [0.0, 10.0], None, "labels are 0 to 10, and the last layer has 10 units"),
    ([keras.layers.Dense(10)], [1.0, 0.25], None, "a label is 0.25, and the default loss distinguishes classes"),
    ([keras.layers.Dense(10)], [-1, 10], cross_entropy, ""),
    ([keras.layers.Dense(1)], [0, 0], None, "the model has one output, and the default loss distinguishes classes"),
    ([keras.layers.Dense(1)], [0, 1], cross_entropy, ""),
]


@pytest.mark.parametrize(("layers", "labels", "loss", "said"), FITS)
def test_what_would_train_wrongly_without_an_error_is_reported(
    layers: list[Any], labels: list[float], loss: Any, said: str
) -> None:
    digits, source = with_workload(loss=loss), inputs.source((np.zeros((2, 8, 8)), np.array(labels)), "data()")
    try:
        lines = check(digits, network(*layers), source)
    except UserError as error:
        lines = [str(error)]
    assert len(lines) == bool(said)
    assert all(said in line for line in lines)


def test_a_dataset_of_batches_is_refused_by_the_models_inputs() -> None:
    batches = tf.data.Dataset.from_tensor_slices((np.zeros((9, 8, 8)), np.zeros(9))).batch(3)
    with pytest.raises(UserError, match=r"^workload: digits: data\(\) gives a Dataset of batches"):
        check(setup(), network(keras.layers.Dense(10)), inputs.source(batches, "data()"))


class Noise(keras.Model):  # type: ignore[misc]
    """A train_step of its own, with a random seed."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten, self.dense = keras.layers.Flatten(), keras.layers.Dense(10)
        self.seeds = keras.random.SeedGenerator(1)

    def call(self, x: Any) -> Any:
        return self.dense(self.flatten(x))

    def train_step(self, data: Any) -> Any:
        return super().train_step((data[0] + keras.random.normal((8, 8), seed=self.seeds), data[1]))


def noise() -> Any:
    model = Noise()
    model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def recurrent(layer: Any) -> Any:
    return keras.Sequential([keras.Input((8, 8)), keras.layers.Bidirectional(layer), keras.layers.Dense(10)])


def random_at_the_end() -> Any:
    hidden = keras.layers.GRU(3, dropout=0.0)(x := keras.Input((8, 8)))
    return keras.Model(x, keras.layers.Dense(10)(network(keras.layers.BatchNormalization())(x) + hidden[:, :1]))


def adapted() -> Any:
    return network(keras.layers.Normalization(mean=1.0, variance=2.0), keras.layers.Normalization(), dense())


def dense() -> Any:
    return keras.layers.Dense(10)


# Each: a model, and what updates a variable by itself.
SHARED: list[tuple[Any, str | None]] = [
    (lambda: recurrent(keras.layers.LSTM(4)), None),
    (lambda: recurrent(keras.layers.GRU(4, dropout=0.1)), "GRUCell updates"),
    (lambda: recurrent(keras.layers.LSTM(4, recurrent_dropout=0.1)), "LSTMCell updates"),
    (adapted, None),
    (random_at_the_end, "BatchNormalization updates"),
    (lambda: network(keras.layers.Dropout(0.0), dense()), None),
    (lambda: network(keras.layers.Dropout(0.5), dense()), "Dropout updates"),
    (lambda: network(keras.layers.BatchNormalization(trainable=False), dense()), None),
    (lambda: noise(), "Noise may update"),
]


@pytest.mark.parametrize(("make", "who"), SHARED)
def test_devices_share_variables_that_no_step_updates(make: Any, who: str | None) -> None:
    job = with_workload(model=make)
    for devices, refuses in ((1, False), (2, who is not None)):
        spec = build({"strategy": "central_storage", "name": "j", "tasks": {"worker": {"cpu_devices": devices}}})
        with pytest.raises(UserError) if refuses else nullcontext() as error:
            build_state(replace(job, spec=spec, task=tasks_of(spec)[0]))
        if error is not None:
            found = str(error.value)
            assert f": 2 devices cannot share a variable that {who} by itself under central_storage; use mirr" in found


def examples(count: int) -> Any:
    return tf.data.Dataset.from_tensor_slices((np.zeros((count, 8, 8)), np.zeros(count, "int32")))


def of_each(shard: Shard) -> Any:
    return examples(1).shard(shard.count, shard.index)


@pytest.mark.parametrize("tasks", [{"worker": 2}, {"worker": 2, "ps": 1}], ids=["multi_worker_mirrored", "ps"])
def test_a_task_without_examples_is_refused_with_their_number(tasks: dict[str, int]) -> None:
    job = with_data(setup(tasks), of_each)
    second = replace(job, task=tasks_of(job.spec)[0 if "ps" in tasks else 1])
    with pytest.raises(UserError) as caught:
        check(second, second.workload.model(), second.training)
    assert str(caught.value) == (
        "workload: digits: data('train') gives worker:1 no examples: the Dataset has 1, and there are 2 tasks; give "
        "each task at least one"
    )


@pytest.mark.parametrize("x", [np.zeros((4, 8, 8)), {"image": np.zeros((4, 8, 8)), "label": np.zeros(4)}])
def test_training_data_without_the_labels_of_the_loss_are_refused(x: Any) -> None:
    model, source = compiled(), inputs.source(tf.data.Dataset.from_tensor_slices(x), "data('train')")
    with pytest.raises(UserError) as caught:
        check(setup(), model, source)
    where = "; if the labels are in x, take them out: it has 'image', 'label'" if isinstance(x, dict) else ""
    assert str(caught.value) == (
        "workload: digits: data('train'): gives x alone, and the loss compares y with the prediction; give (x, y)"
        + where
    )
    own = network(keras.layers.Dense(10))
    own.compile("sgd")  # and losses of add_loss
    check(setup(), own, source)


class Complex(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.w = self.add_weight(shape=(2,), dtype="complex64", name="w")
        self.built = True


def test_a_complex_weight_is_refused_where_replicas_add_up_gradients() -> None:
    job = with_workload(model=Complex)
    build_state(job)
    spec = build({"strategy": "multi_worker_mirrored", "name": "j", "tasks": {"worker": 2}})
    with pytest.raises(UserError, match=r"digits: complex/w is complex64, and replicas add up gradients of real numb"):
        build_state(replace(job, spec=spec, task=tasks_of(spec)[0]))


def x_alone(shard: Shard) -> Any:
    return examples(4).map(lambda x, y: x) if shard.split == "test" else examples(4)


def compiled() -> Any:
    model = network(keras.layers.Dense(10))
    model.compile("sgd", "mse")
    return model


# Each: parts of a workload, and what is wrong with the data that evaluate.
EVALUATED: list[tuple[dict[str, Any], str | None]] = [
    ({}, None),
    (
        {"validation": lambda shard: examples(0), "callbacks": list},
        "validation(): gives no examples; give at least one",
    ),
    ({"validation": lambda shard: examples(0)}, None),
    ({"data": lambda shard: examples(4 if shard.split == "train" else 0)}, "data('test'): gives no examples; give at"),
    (
        {"data": x_alone},
        "digits: data('test'): gives x alone, and the loss compares y with the prediction; give (x, y)",
    ),
    (
        {"data": x_alone, "model": compiled},
        "digits: data('test'): gives x alone, and the loss compares y with the pred",
    ),
    ({"data": x_alone, "evaluate": lambda model: {}}, None),
]


@pytest.mark.parametrize(("parts", "problem"), EVALUATED, ids=range(len(EVALUATED)))
def test_data_that_cannot_be_evaluated_on_are_refused_before_the_first_step(
    parts: dict[str, Any], problem: str | None
) -> None:
    job = replace(with_workload(**{"data": lambda shard: examples(4), **parts}), arrays=None)
    with nullcontext() if problem is None else pytest.raises(UserError) as caught:
        require_data_to_evaluate(job, job.workload.model())
    assert caught is None or str(caught.value).startswith(f"workload: {problem}")


@pytest.mark.parametrize("used", [False, True])
def test_validation_data_that_nothing_uses_are_told(used: bool) -> None:
    parts = {"callbacks": list} if used else {}
    sent: list[Event] = []
    job = with_workload(data=lambda shard: examples(4), validation=lambda shard: examples(4), **parts)
    job = replace(job, arrays=None, send=sent.append)
    require_data_to_evaluate(job, job.workload.model())
    lines = [event.text for event in sent if isinstance(event, events.Line)]
    assert [line.partition(":")[2].partition(":")[0] for line in lines] == ([] if used else [" validation()"])


def test_two_splits_are_two_inputs_and_two_outputs_for_a_model_that_has_them() -> None:
    def two() -> Any:
        parts = [keras.Input((4,)), keras.Input(())]
        return keras.Model(parts, [keras.layers.Dense(4)(parts[0]), keras.layers.Identity()(parts[1])])

    pairs = (np.zeros((5, 4)), np.zeros(5)), (np.ones((5, 4)), np.ones(5))
    for model in (two, lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])):
        job = replace(with_workload(model=model, data=lambda shard: pairs, loss=cross_entropy), arrays=None)
        with nullcontext() if model is two else pytest.raises(UserError, match="gave two pairs"):
            check(job, model(), job.training)
