from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.jobs import DIGITS, setup, with_data, with_workload
from trainer.job.errors import UserError
from trainer.training.model.evaluation import evaluate
from trainer.training.model.state import TrainState, build_state
from trainer.training.task import TrainingTask
from trainer.workloads.estimator import Context, EvalSpec, LinearRegressor

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


@pytest.fixture(scope="module")
def built() -> TrainState:
    return build_state(setup())


def test_figures_that_are_no_numbers_are_the_users(built: TrainState) -> None:
    wrong = with_workload(evaluate=lambda model: {"a": [1, 2]})
    with pytest.raises(
        UserError, match=r"^workload: digits: evaluate\(model\), which must give numbers by name: TypeErr"
    ):
        evaluate(wrong, built.values())


def test_evaluation_is_the_mean_over_the_test_split(built: TrainState) -> None:
    x, y = DIGITS["x_test"], DIGITS["y_test"]
    prediction = built.model(x)
    loss = keras.losses.sparse_categorical_crossentropy(y, prediction, from_logits=True).numpy().mean()
    model, figures = evaluate(setup(), built.values())
    assert figures == {
        "loss": pytest.approx(float(loss), rel=1e-4),
        "accuracy": pytest.approx(float((prediction.numpy().argmax(1) == y).mean())),
    }
    assert model is not built.model
    np.testing.assert_allclose(model(x[:5]), prediction[:5], rtol=1e-4, atol=1e-5)


def test_a_workload_may_evaluate_by_itself(built: TrainState) -> None:
    own = with_workload(evaluate=lambda model: {"figure": np.float32(len(model.variables))})
    _, figures = evaluate(own, built.values())
    assert figures == {"figure": 6.0}
    assert type(figures["figure"]) is float


NUMBERS = tf.data.Dataset.from_tensor_slices((np.arange(12.0), -np.arange(12.0)))


def regression(eval_spec: EvalSpec) -> TrainingTask:
    """A model that predicts twice its input, in batches of 4."""
    linear = LinearRegressor(["x"])

    def model() -> Any:
        made = linear.model()
        made.variables[0].assign([[2.0]])
        return made

    job = setup(train={"batch_size": 4})
    theirs = replace(
        job.workload, model=model, loss=linear.loss, metrics=dict(linear.metrics or {}), eval_spec=eval_spec
    )
    return replace(job, workload=theirs)


# Each: steps of the eval spec, and how many of its examples are evaluated.
@pytest.mark.parametrize(("steps", "count"), [(1, 4), (2, 8), (100, 10), (None, 10)])
def test_an_evaluation_uses_the_number_of_batches_in_its_eval_spec(steps: int | None, count: int) -> None:
    asked: list[Context] = []

    def input_fn(context: Context) -> Any:
        asked.append(context)
        column = NUMBERS.take(10).map(lambda x, y: ({"x": x[tf.newaxis]}, tf.cast(y, tf.float32)[tf.newaxis]))
        return column.batch(context.batch_size)

    job = regression(EvalSpec(input_fn, steps=steps))
    values = TrainState(job.workload.model(), keras.optimizers.SGD()).values()
    _, figures = evaluate(job, values)
    assert asked == [Context(num_input_pipelines=1, input_pipeline_id=0, num_replicas_in_sync=1, batch_size=4)]
    x = np.arange(count)
    assert figures == {
        "loss": pytest.approx(np.mean((2 * x - -x) ** 2)),
        "label/mean": pytest.approx(np.mean(-x)),
        "prediction/mean": pytest.approx(np.mean(2 * x)),
    }


def test_an_evaluation_without_steps_of_an_endless_input_fn_is_refused() -> None:
    def job(steps: int | None) -> TrainingTask:
        return regression(EvalSpec(lambda context: NUMBERS.repeat().batch(context.batch_size), steps=steps))

    assert len(list(job(3).evaluation())) == 3
    with pytest.raises(UserError, match=r"^workload: the EvalSpec's input_fn\(\): the Dataset never ends"):
        job(None).evaluation()


def test_an_evaluation_with_sample_weights_is_that_of_keras(built: TrainState) -> None:
    x, y = DIGITS["x_test"], DIGITS["y_test"]
    weights = np.random.default_rng(0).uniform(size=len(y))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    built.model.compile(loss=loss, metrics=["accuracy"])
    expected = built.model.evaluate(x, y, sample_weight=weights, verbose=0, return_dict=True)
    built.model.compiled = False
    _, figures = evaluate(with_data(setup(), lambda shard: (x, y, weights)), built.values())
    assert figures == pytest.approx(expected, rel=1e-4)
    unweighted = keras.losses.sparse_categorical_crossentropy(y, built.model(x), from_logits=True).numpy().mean()
    assert abs(figures["loss"] - unweighted) > 0.1


def test_an_evaluation_of_x_alone_is_refused(built: TrainState) -> None:
    with pytest.raises(UserError, match=r"^workload: digits: the data are x alone, and the loss compares y"):
        evaluate(with_data(setup(), lambda shard: DIGITS["x_test"]), built.values())
