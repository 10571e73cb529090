from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import metrics

from tests.unit.training.models import Counted, Largest
from trainer.training.model.additive import adds_up, is_kerass

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


ARGUMENTS: dict[str, dict[str, Any]] = {
    "MeanMetricWrapper": {"fn": keras.losses.mean_squared_error},
    **{name: {"num_classes": 2, "target_class_ids": [0]} for name in ("IoU", "OneHotIoU")},
    **{name: {"num_classes": 2} for name in ("MeanIoU", "OneHotMeanIoU")},
    "SensitivityAtSpecificity": {"specificity": 0.5},
    "SpecificityAtSensitivity": {"sensitivity": 0.5},
    "PrecisionAtRecall": {"recall": 0.5},
    "RecallAtPrecision": {"precision": 0.5},
}
KERASS = [
    kind
    for kind in vars(metrics).values()
    if isinstance(kind, type) and issubclass(kind, metrics.Metric) and kind is not metrics.Metric
]
PAIRS = [tf.TensorSpec((16, 2), tf.float32)] * 2


def empty(metric: Any) -> list[Any]:
    metric.reset_state()
    return [np.array(v) for v in metric.variables]


@pytest.mark.parametrize("kind", KERASS, ids=lambda kind: kind.__name__)
def test_all_metrics_of_keras_add_up(kind: Any) -> None:
    metric = kind(**ARGUMENTS.get(kind.__name__, {}))
    assert is_kerass(metric)
    if kind.__name__ in ("Mean", "Sum"):
        arguments = PAIRS[:1]
    elif kind.__name__.startswith("Sparse"):
        arguments = [tf.TensorSpec((16,), tf.int32), PAIRS[1]]
    elif kind.__name__ in ("IoU", "MeanIoU"):
        arguments = [tf.TensorSpec((16,), tf.int32)] * 2
    else:
        arguments = PAIRS
    metric.update_state(*(tf.cast(tf.fill(each.shape, 1), each.dtype) for each in arguments))  # creates its variables
    assert adds_up(metric, empty(metric), arguments, {})


class Last(metrics.Metric):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="last")
        self.value = self.add_variable((), "zeros")

    def update_state(self, *args: Any, **kwargs: Any) -> None:
        self.value.assign(self.change(keras.ops.mean(args[1])))

    def change(self, new: Any) -> Any:
        return new


class Smooth(Last):
    def change(self, new: Any) -> Any:
        return 0.9 * self.value + 0.1 * new


class Least(Last):
    def reset_state(self) -> None:
        self.value.assign(np.inf)

    def change(self, new: Any) -> Any:
        return keras.ops.minimum(self.value, new)


class Total(Last):
    def change(self, new: Any) -> Any:
        return self.value + new


class Particular(Last):
    def change(self, new: Any) -> Any:
        raise ValueError("only values of mine")


class Highest(Last):
    """Random values below 1 do not change it."""

    def reset_state(self) -> None:
        self.value.assign(50.0)

    def change(self, new: Any) -> Any:
        return keras.ops.maximum(self.value, keras.ops.max(new))


class Rare(Last):
    """Adds what random values are never."""

    def change(self, new: Any) -> Any:
        return self.value + keras.ops.cast(new > 1e6, "float32")


class Scaled(Total):
    """Has a constant, which it does not assign."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = self.add_variable((), keras.initializers.Constant(3.0))

    def reset_state(self) -> None:
        self.value.assign(0.0)

    def change(self, new: Any) -> Any:
        return self.value + self.scale * new


class Below(Last):
    """Takes values up to 1 only."""

    def change(self, new: Any) -> Any:
        return self.value + keras.ops.log(1.0 - new)


class OwnMean(metrics.Mean):  # type: ignore[misc]
    """Its result is its own, its state Keras'."""

    def result(self) -> Any:
        return keras.ops.sqrt(super().result())


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Last, False),
        (Smooth, False),
        (Least, False),
        (Largest, False),
        (Particular, False),
        (Highest, False),
        (Rare, False),
        (Scaled, True),
        (Below, True),
        (Total, True),
        (Counted, True),
    ],
)
def test_the_state_of_other_metrics_is_tried(kind: Any, expected: bool) -> None:
    metric = kind()
    assert not is_kerass(metric)
    assert adds_up(metric, empty(metric), PAIRS, {"sample_weight": None}) is expected


def test_a_value_that_is_no_tensor_is_no_state_that_adds_up() -> None:
    assert adds_up(Total(), [np.asarray(None)], PAIRS, {}) is False


def test_a_result_of_its_own_is_no_state_of_its_own() -> None:
    assert is_kerass(OwnMean())
