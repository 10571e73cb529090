import hashlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.load import build
from trainer.job.tf_config import tasks_of
from trainer.model_dir import checkpoint
from trainer.training import inputs
from trainer.training import task as training
from trainer.training.loops import closures
from trainer.training.outputs.finish import raise_if_not_finite
from trainer.training.task import Setup, Trainable
from trainer.workloads import datasets, workload
from trainer.workloads.estimator import Context, EvalSpec, Hook, LinearRegressor, TrainSpec

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")

MIRRORED, SERVED = "multi_worker_mirrored", "parameter_server"
DIGITS = datasets.load("digits")


def setup(tasks: dict[str, Any] | None = None, **spec: Any) -> Setup:
    """Of a job that trains digits, as its first task."""
    tasks = tasks or {"worker": 1}
    strategy = SERVED if "ps" in tasks else MIRRORED
    job = build({"name": "j", "strategy": strategy, "workload": "digits", "tasks": tasks, **spec})
    return Setup(job, tasks_of(job)[0], workload.load(job), DIGITS)


def with_workload(**parts: Any) -> Setup:
    """Digits, but for those parts of the workload."""
    digits = setup()
    return replace(digits, workload=replace(digits.workload, **parts))


@pytest.fixture(scope="module")
def built() -> Trainable:
    return training.build(setup())


def test_a_checkpoint_fits_the_code_that_was_loaded_whatever_the_file_holds_now(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from trainer.workloads.digits import DATASET, model\n")
    own = setup(workload=str(path))
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_text("# edited\n")
    assert own.fits["workload_sha256"] == before
    assert setup().fits["workload_sha256"] is None


# Model and optimizer. -----------------------------------------------------------------------------


def test_a_trainable_describes_all_that_a_checkpoint_holds(built: Trainable) -> None:
    described = built.description()
    assert [name for name in described if name.startswith("model.")] == [f"model.{i:03d}" for i in range(6)]
    assert described["model.000"]["shape"] == [64, 128]
    assert described["model.000"]["dtype"] == "float32"
    assert len(described) == 6 + 2 + 2 * 6, "adam: iteration, learning rate, and two slots per variable"
    assert described["optimizer.000"]["shape"] == []
    values = built.values()
    assert {n: (list(v.shape), str(v.dtype)) for n, v in values.items()} == {
        n: (d["shape"], d["dtype"]) for n, d in described.items()
    }


def test_values_are_copies_and_come_back_by_assignment(built: Trainable) -> None:
    values = built.values()
    before = {name: value.copy() for name, value in values.items()}
    built.assign({name: np.ones_like(value) for name, value in values.items()})
    assert all((values[name] == before[name]).all() for name in values), "the copies stayed as they were"
    assert all((value == 1).all() for value in built.values().values())
    built.assign(before)
    assert all((value == before[name]).all() for name, value in built.values().items())


def test_the_seed_decides_the_first_values() -> None:
    def first(seed: int) -> bytes:
        return training.build(setup(train={"seed": seed})).values()["model.000"].tobytes()

    assert first(1) == first(1) != first(2)


def test_a_model_that_is_not_built_is_refused() -> None:
    unbuilt = with_workload(model=lambda: keras.Sequential([keras.layers.Dense(3)]))
    with pytest.raises(
        UserError, match=r"^workload: digits: model\(\) must give a built model; begin with keras\.Input$"
    ):
        training.build(unbuilt)


def test_a_model_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match=r"^workload: digits: model\(\) must give a Keras model, gave int$"):
        training.build(with_workload(model=lambda: 3))


class Lazy(keras.Model):  # type: ignore[misc]
    """Says that it is built, and makes the variables of a layer when it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.flatten, self.dense = keras.layers.Flatten(), keras.layers.Dense(10)

    def build(self, shape: Any) -> None:
        self.built = True

    def call(self, x: Any) -> Any:
        return self.dense(self.flatten(x))


def test_a_model_that_makes_its_variables_when_it_is_called_is_refused() -> None:
    lazy = with_workload(model=Lazy)
    built = Trainable(lazy.workload.model(), keras.optimizers.SGD())
    built.model.build((None, 8, 8))
    step = tf.function(training.make_step(lazy, built, 1), autograph=False)
    with pytest.raises(
        UserError, match=r"^workload: digits: model\(\) must give a model with all its variables; begin"
    ):
        step((tf.zeros([2, 8, 8]), tf.zeros([2], tf.int32)))


def network(*layers: Any) -> Any:
    return keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten(), *layers])


def cross_entropy(y: Any, prediction: Any) -> Any:
    return keras.losses.sparse_categorical_crossentropy(y, prediction)


# Each: the end of a model, labels, loss, and what is told: a warning, an error, or nothing.
FITS: list[tuple[list[Any], list[int], Any, str]] = [
    ([keras.layers.Dense(10)], [0, 9], None, ""),
    ([keras.layers.Dense(10, activation="softmax")], [0, 9], None, "the last layer has softmax, and the default loss"),
    ([keras.layers.Dense(10), keras.layers.Softmax()], [0, 9], None, "the last layer has softmax"),
    ([keras.layers.Dense(10), keras.layers.Activation("softmax")], [0, 9], None, "the last layer has softmax"),
    ([keras.layers.Dense(10, activation="sigmoid")], [0, 9], None, "the last layer has sigmoid"),
    ([keras.layers.Dense(10, activation="softmax")], [0, 9], cross_entropy, ""),
    ([keras.layers.Dense(10)], [0, 10], None, "labels are 0 to 10, and the last layer has 10 units"),
    ([keras.layers.Dense(10)], [-1, 9], None, "labels are -1 to 9, and the last layer has 10 units"),
    ([keras.layers.Dense(10)], [-1, 10], cross_entropy, ""),
    ([keras.layers.Dense(1)], [0, 0], None, "the model has one output, and the default loss tells classes apart"),
    ([keras.layers.Dense(1)], [0, 1], cross_entropy, ""),
]


@pytest.mark.parametrize(("layers", "labels", "loss", "said"), FITS)
def test_what_would_train_wrongly_without_an_error_is_told(
    layers: list[Any], labels: list[int], loss: Any, said: str
) -> None:
    digits, source = with_workload(loss=loss), inputs.source((np.zeros((2, 8, 8)), np.array(labels)), "train")
    try:
        lines = training.check(digits, network(*layers), source)
    except UserError as error:
        lines = [str(error)]
    assert len(lines) == bool(said)
    assert all(said in line for line in lines)


def test_a_dataset_of_batches_is_refused_by_the_models_inputs() -> None:
    batches = tf.data.Dataset.from_tensor_slices((np.zeros((9, 8, 8)), np.zeros(9))).batch(3)
    with pytest.raises(UserError, match=r"^workload: digits: data\(\) gives a Dataset of batches"):
        training.check(setup(), network(keras.layers.Dense(10)), inputs.Source(dataset=batches))


def test_figures_that_are_no_numbers_are_the_users(built: Trainable) -> None:
    wrong = with_workload(evaluate=lambda model: {"a": [1, 2]})
    with pytest.raises(
        UserError, match=r"^workload: digits: evaluate\(model\), which must give numbers by name: TypeErr"
    ):
        training.evaluate(wrong, built.values())


# Each: tasks, learning_rate_scaling, and the factor of the rate.
SCALING: list[tuple[dict[str, Any], str, float]] = [
    ({"worker": 4}, "none", 1),
    ({"worker": 4}, "linear", 4),
    ({"worker": 4}, "sqrt", 2),
    ({"chief": 1, "worker": 1}, "sqrt", math.sqrt(2)),
    ({"worker": 4, "ps": 1}, "linear", 1),
]


@pytest.mark.parametrize(("tasks", "scaling", "factor"), SCALING)
def test_the_learning_rate_follows_the_replicas_in_sync(tasks: dict[str, Any], scaling: str, factor: float) -> None:
    train = {"learning_rate": 0.1, "learning_rate_scaling": scaling, "optimizer": "sgd"}
    optimizer = training.build(setup(tasks, train=train)).optimizer
    assert float(optimizer.learning_rate) == pytest.approx(0.1 * factor)


@pytest.mark.parametrize("name", ["adam", "sgd", "rmsprop", "adagrad"])
def test_the_optimizer_is_the_one_that_was_asked_for(name: str) -> None:
    assert type(training.build(setup(train={"optimizer": name})).optimizer).__name__.lower() == name


@pytest.fixture
def _any_policy() -> Iterator[None]:
    before = keras.mixed_precision.dtype_policy()
    yield
    keras.mixed_precision.set_dtype_policy(before)


@pytest.mark.usefixtures("_any_policy")
def test_under_float16_the_loss_is_scaled_and_variables_stay_float32() -> None:
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    digits = setup(train={"mixed_precision": "float16", "optimizer": "sgd", "learning_rate": 0.5})
    trainable = training.build(digits)
    assert isinstance(trainable.optimizer, keras.optimizers.LossScaleOptimizer)
    assert {variable.dtype for variable in trainable.model.variables} == {"float32"}
    step = tf.function(training.make_step(digits, trainable, 1))
    losses = [float(step(batch())[1][0]) for _ in range(20)]
    assert losses[-1] < losses[0] / 2, "scaled and scaled back: sgd shows the size of a gradient"


# A step. ------------------------------------------------------------------------------------------


def batch(start: int = 0, count: int = 64) -> tuple[Any, Any]:
    rows = slice(start, start + count)
    return tf.constant(DIGITS["x_train"][rows]), tf.constant(DIGITS["y_train"][rows])


def test_a_step_lowers_the_loss_and_tells_loss_and_accuracy_from_before_it() -> None:
    digits = setup(train={"optimizer": "sgd", "learning_rate": 0.1})
    trainable = training.build(digits)
    x, y = batch()
    expected = keras.losses.sparse_categorical_crossentropy(y, trainable.model(x), from_logits=True).numpy().mean()
    right = float((trainable.model(x).numpy().argmax(1) == y.numpy()).mean())
    step = tf.function(training.make_step(digits, trainable, 1))
    loss, accuracy = step((x, y))[1].numpy()
    assert (loss, accuracy) == (pytest.approx(expected, rel=1e-4), pytest.approx(right))
    assert float(step((x, y))[1][0]) < loss
    assert int(trainable.optimizer.iterations) == 2


def test_gradients_of_two_replicas_add_up_to_those_of_one_of_twice_the_size() -> None:
    def change(digits: Setup, replicas: int, *parts: tuple[Any, Any]) -> Any:
        total: Any = 0
        for part in parts:
            trainable = training.build(digits)
            before = trainable.values()["model.000"]
            training.make_step(digits, trainable, replicas)(part)
            total += trainable.values()["model.000"] - before
        return total

    train = {"optimizer": "sgd", "learning_rate": 0.1, "global_batch_size": 64}
    one = change(setup(train=train), 1, batch(0, 64))
    two = change(setup({"worker": 2}, train=train), 2, batch(0, 32), batch(32, 32))
    assert np.abs(one).max() > 1e-4
    np.testing.assert_allclose(two, one, atol=1e-6)


def test_losses_of_the_model_are_part_of_the_step() -> None:
    def model() -> keras.Model:
        regulariser = keras.regularizers.L2(1.0)
        return keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, kernel_regularizer=regulariser)])

    squared = with_workload(model=model, loss=lambda y, prediction: 0.0 * prediction[:, 0], metrics={})
    trainable = training.build(squared)
    _, (loss,) = training.make_step(squared, trainable, 1)((tf.ones([64, 4]), tf.zeros([64])))
    assert float(loss) == pytest.approx(float(np.square(trainable.values()["model.000"]).sum()), abs=0.05)
    assert float(loss) > 0


def test_a_loss_must_be_one_value_per_example() -> None:
    scalar = with_workload(loss=lambda y, prediction: tf.reduce_mean(prediction))
    step = tf.function(training.make_step(scalar, training.build(scalar), 1))
    with pytest.raises(Exception, match="it gave a scalar") as caught:
        step(batch())
    error = workload.original(caught.value)
    assert isinstance(error, UserError)
    assert str(error).startswith(
        "workload: loss(y, prediction) must give one value per example, shape [64]; it gave a scalar, where y is [64], "
        "the prediction [64, 10]; give y and the prediction the same shape"
    )


FILE = """import keras, tensorflow as tf
DATASET = "digits"
def model():
    return keras.Sequential([keras.Input((8, 8), dtype="uint8"), keras.layers.Flatten(), keras.layers.Dense(10)])
def loss(y, prediction):
    bigger = prediction + 1.0
    prediction = tf.where(tf.size(y) > 3, bigger, prediction)
    return {}
"""
THEIRS = [
    ("tf.zeros([64]) + nope", "NameError: name 'nope' is not defined"),
    ("{'a': 1}['b']", "KeyError: 'b'"),
    ("keras.losses.nope(y)", "AttributeError: module 'keras.losses' has no attribute 'nope'"),
    ("prediction + tf.ones([7, 7])", "ValueError: Dimensions must be equal, but are 64 and 7"),
    ("0.0 if y[0] > 3 else 1.0", "OperatorNotAllowedInGraphError: Using a symbolic `tf.Tensor` as a Python `bool`"),
]


@pytest.mark.parametrize(("wrong", "told"), THEIRS)
def test_an_error_in_a_users_loss_is_told_with_its_line_though_autograph_is_around_it(
    tmp_path: Path, wrong: str, told: str
) -> None:
    file = tmp_path / "job.py"
    file.write_text(FILE.format(wrong))
    theirs = setup(workload=str(file))
    step = training.make_step(theirs, training.build(theirs), 1)
    call = tf.function(lambda batch: tf.distribute.get_strategy().run(step, (batch,)))
    with pytest.raises(Exception) as caught:  # noqa: PT011 (whichever AutoGraph makes of it)
        call(batch())
    error = workload.original(caught.value)
    assert isinstance(error, UserError)
    assert str(error).startswith(f"workload: {file}:8: {told}")


def own(y: Any, prediction: Any) -> Any:
    return y


# Each: parts of a workload, and the names of its metrics.
METRICS: list[tuple[dict[str, Any], list[str]]] = [
    ({}, ["accuracy"]),
    ({"loss": own}, []),
    ({"metrics": {"mine": own}}, ["mine"]),
    ({"loss": own, "metrics": {"mine": own}}, ["mine"]),
    ({"metrics": {}}, []),
]


@pytest.mark.parametrize(("parts", "names"), METRICS)
def test_accuracy_is_told_only_where_it_means_something(parts: dict[str, Any], names: list[str]) -> None:
    assert list(with_workload(**parts).metrics) == names


@pytest.mark.parametrize(
    ("train", "tasks", "steps"),
    [
        ({}, {"worker": 1}, 1000),
        ({"steps": 7}, {"worker": 1}, 7),
        ({"epochs": 2, "batch_size": 100}, {"worker": 1}, 28),
        ({"epochs": 2, "batch_size": 50}, {"worker": 2}, 28),
        ({"epochs": 2, "batch_size": 50}, {"worker": 2, "ps": 1}, 56),
    ],
)
def test_total_steps(train: dict[str, Any], tasks: dict[str, Any], steps: int) -> None:
    digits = setup(tasks, train=train)
    assert len(DIGITS["x_train"]) // 100 == 14
    assert training.total_steps(digits, digits.split(workload.Shard("train"))) == steps


@pytest.mark.parametrize(
    ("losses", "step"), [([0.1, math.nan], 12), ([math.inf, math.nan], 11), ([0.1, -math.inf], 12)]
)
def test_a_loss_that_is_not_finite_is_told_with_its_step(losses: list[float], step: int) -> None:
    raise_if_not_finite(np.array([0.1, 1e30]), 10)
    with pytest.raises(TrainerError, match=rf"^the loss is \S+ at step {step}; lower train\.learning_rate") as caught:
        raise_if_not_finite(np.array(losses), 10)
    assert caught.value.code is Exit.DIVERGED


# Checkpoints and the end. -------------------------------------------------------------------------


def save(digits: Setup, trainable: Trainable, step: int) -> Path:
    meta = {"fits": digits.fits, "variables": trainable.description()}
    return checkpoint.save(digits.spec.directory, step, trainable.values(), meta)


def test_restore_gives_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    digits = setup(model_dir=str(tmp_path), train={"seed": 1})
    trainable = training.build(digits)
    assert training.restore(digits, trainable, 100) == (0, [])
    saved = trainable.values()
    save(digits, trainable, 10)
    (save(digits, trainable, 20) / "variables.npz").write_bytes(b"")
    other = training.build(setup(model_dir=str(tmp_path), train={"seed": 2}))
    step, broken = training.restore(digits, other, 100)
    assert (step, len(broken)) == (10, 1)
    assert all((value == saved[name]).all() for name, value in other.values().items())


def test_restore_refuses_another_model(tmp_path: Path) -> None:
    digits = setup(model_dir=str(tmp_path))
    save(digits, training.build(digits), 10)
    bigger = keras.Sequential([keras.Input((8, 8), dtype="uint8"), keras.layers.Flatten(), keras.layers.Dense(10)])
    other = replace(digits, workload=replace(digits.workload, model=lambda: bigger))
    with pytest.raises(UserError, match=r"does not fit this spec: variable \S+: checkpoint float32\[64, 128\], model"):
        training.restore(other, training.build(other), 100)


def test_restore_refuses_a_checkpoint_past_the_end_of_the_job(tmp_path: Path) -> None:
    """Whatever the end follows from: steps, epochs, or the default."""
    trainable = training.build(setup())
    save(setup(model_dir=str(tmp_path)), trainable, 1500)
    for train, told in {
        (): "train.steps: the checkpoint is at step 1500, this job ends at step 1000",
        (("steps", 1499),): "train.steps: the checkpoint is at step 1500, this job ends at step 1499",
        (("epochs", 2),): "train.epochs: 2: the checkpoint is at step 1500, this job ends at step 44",
    }.items():
        digits = setup(model_dir=str(tmp_path), train=dict(train))
        total = training.total_steps(digits, digits.split(workload.Shard("train")))
        with pytest.raises(UserError, match=f"its checkpoint of step 1500 does not fit this spec: {told}; undo the"):
            training.restore(digits, trainable, total)
    digits = setup(model_dir=str(tmp_path), train={"steps": 1500})
    assert training.restore(digits, trainable, 1500) == (1500, [])


def test_a_bfloat16_variable_survives_a_checkpoint(tmp_path: Path) -> None:
    def model() -> keras.Model:
        return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, dtype="bfloat16")])

    digits = setup(model_dir=str(tmp_path), train={"optimizer": "sgd"})
    digits = replace(digits, workload=replace(digits.workload, model=model))
    trainable = training.build(digits)
    saved = trainable.values()["model.000"].astype(np.float32)
    save(digits, trainable, 10)
    trainable.assign({name: np.zeros_like(value) for name, value in trainable.values().items()})
    assert training.restore(digits, trainable, 100) == (10, [])
    assert (trainable.values()["model.000"].astype(np.float32) == saved).all()


def test_evaluation_is_the_mean_over_the_test_split(built: Trainable) -> None:
    x, y = DIGITS["x_test"], DIGITS["y_test"]
    prediction = built.model(x)
    loss = keras.losses.sparse_categorical_crossentropy(y, prediction, from_logits=True).numpy().mean()
    model, figures = training.evaluate(setup(), built.values())
    assert figures == {
        "loss": pytest.approx(float(loss), rel=1e-4),
        "accuracy": pytest.approx(float((prediction.numpy().argmax(1) == y).mean())),
    }
    assert model is not built.model
    np.testing.assert_allclose(model(x[:5]), prediction[:5], rtol=1e-4, atol=1e-5)


def test_a_workload_may_evaluate_by_itself(built: Trainable) -> None:
    own = with_workload(evaluate=lambda model: {"figure": np.float32(len(model.variables))})
    _, figures = training.evaluate(own, built.values())
    assert figures == {"figure": 6.0}
    assert type(figures["figure"]) is float


def test_a_split_comes_from_the_dataset_or_from_the_data_function() -> None:
    shard = workload.Shard("test", 1, 3, 7)
    assert setup().split(shard).count() == len(DIGITS["x_test"])
    asked: list[workload.Shard] = []

    def data(shard: workload.Shard) -> Any:
        asked.append(shard)
        return np.zeros((5, 2)), np.zeros(5)

    source: inputs.Source = with_workload(data=data).split(shard)
    assert (source.count(), asked) == (5, [shard])


# A train spec and an eval spec. -------------------------------------------------------------------


class Recorder(Hook):
    def __init__(self, name: str, calls: list[Any]) -> None:
        self.name, self.calls = name, calls

    def begin(self) -> None:
        self.calls.append((self.name, "begin"))

    def after_run(self, step: int, figures: Mapping[str, float]) -> None:
        self.calls.append((self.name, step, dict(figures)))

    def end(self, step: int) -> None:
        self.calls.append((self.name, "end", step))


def test_hooks_are_called_in_their_order_with_figures_by_name() -> None:
    calls: list[Any] = []
    hooks = [Recorder("a", calls), Recorder("b", calls)]
    hooked = with_workload(train_spec=TrainSpec(lambda context: None, hooks=hooks))
    hooked.begin()
    hooked.after_run(20, ["loss", "accuracy"], tf.constant([0.5, 0.25]))
    hooked.end(30)
    figures = {"loss": 0.5, "accuracy": 0.25}
    one = [("a", "begin"), ("a", 20, figures), ("a", "end", 30)]
    assert calls == [call for each in one for call in (each, ("b", *each[1:]))]
    assert type(calls[2][2]["loss"]) is float


def test_a_hook_needs_none_of_its_methods_and_a_job_needs_no_hook() -> None:
    for plain in (with_workload(train_spec=TrainSpec(lambda context: None, hooks=[Hook()])), setup()):
        plain.begin()
        plain.after_run(10, ["loss"], np.array([0.5]))
        plain.end(10)


@pytest.mark.parametrize(
    ("max_steps", "train", "steps"), [(5, {}, 5), (5, {"steps": 7}, 7), (9, {"steps": 7}, 7), (None, {}, 1000)]
)
def test_the_steps_of_the_spec_win_over_those_of_the_train_spec(
    max_steps: int | None, train: dict[str, Any], steps: int
) -> None:
    job = setup(train=train)
    job = replace(job, workload=replace(job.workload, train_spec=TrainSpec(lambda context: None, max_steps)))
    assert training.total_steps(job, job.split(workload.Shard("train"))) == steps


NUMBERS = tf.data.Dataset.from_tensor_slices((np.arange(12.0), -np.arange(12.0)))


def test_an_input_fn_is_told_who_asks_and_what_came_before_is_skipped() -> None:
    asked: list[Context] = []

    def input_fn(context: Context) -> Any:
        asked.append(context)
        return NUMBERS.batch(context.batch_size)

    job = setup({"worker": {"replicas": 3, "cpu_devices": 2}}, train={"batch_size": 2})
    job = replace(job, workload=replace(job.workload, train_spec=TrainSpec(input_fn)))
    assert job.split(workload.Shard("train")).count() is None
    batches = job.training(job.split(workload.Shard("train")), shards=3, index=1, local=2, start=2)
    assert asked == [Context(num_input_pipelines=3, input_pipeline_id=1, num_replicas_in_sync=6, batch_size=2)]
    got = [x.tolist() for x, _ in batches.take(3).as_numpy_iterator()]
    assert got == [[8.0, 9.0], [10.0, 11.0], [0.0, 1.0]], "two batches for each of two steps came before"


def regression(eval_spec: EvalSpec) -> Setup:
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
def test_an_evaluation_takes_as_many_batches_as_its_eval_spec_says(steps: int | None, count: int) -> None:
    asked: list[Context] = []

    def input_fn(context: Context) -> Any:
        asked.append(context)
        column = NUMBERS.take(10).map(lambda x, y: ({"x": x[tf.newaxis]}, tf.cast(y, tf.float32)[tf.newaxis]))
        return column.batch(context.batch_size)

    job = regression(EvalSpec(input_fn, steps=steps))
    values = Trainable(job.workload.model(), keras.optimizers.SGD()).values()
    _, figures = training.evaluate(job, values)
    assert asked == [Context(num_input_pipelines=1, input_pipeline_id=0, num_replicas_in_sync=1, batch_size=4)]
    x = np.arange(count)
    assert figures == {
        "loss": pytest.approx(np.mean((2 * x - -x) ** 2)),
        "label/mean": pytest.approx(np.mean(-x)),
        "prediction/mean": pytest.approx(np.mean(2 * x)),
    }


def test_an_evaluation_without_steps_of_an_endless_input_fn_is_refused() -> None:
    def job(steps: int | None) -> Setup:
        return regression(EvalSpec(lambda context: NUMBERS.repeat().batch(context.batch_size), steps=steps))

    assert len(list(job(3).evaluation())) == 3
    with pytest.raises(UserError, match=r"^workload: the EvalSpec's input_fn\(\): the Dataset never ends"):
        job(None).evaluation()


# Keras' counters. ---------------------------------------------------------------------------------


def test_a_patched_keras_counter_is_one_atomic_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    variable = keras.src.backend.tensorflow.core.Variable
    monkeypatch.setattr(variable, "assign_add", variable.assign_add)  # so that it is put back

    def operations() -> list[str]:
        counter = keras.Variable(0, dtype="int64")
        graph = tf.function(lambda: counter.assign_add(1)).get_concrete_function().graph
        return [operation.type for operation in graph.get_operations() if "Variable" in operation.type]

    assert operations()[:2] == ["ReadVariableOp", "AssignVariableOp"], "or the patch is needed no more"
    closures.make_keras_counters_atomic()
    assert operations().count("AssignAddVariableOp") == 1
    assert "AssignVariableOp" not in operations()


def test_a_patched_optimizer_counts_its_steps_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    variable = keras.src.backend.tensorflow.core.Variable
    monkeypatch.setattr(variable, "assign_add", variable.assign_add)
    closures.make_keras_counters_atomic()
    digits = setup(train={"optimizer": "sgd"})
    trainable = training.build(digits)
    step = tf.function(training.make_step(digits, trainable, 1))
    x, y = batch()
    operations = step.get_concrete_function((x, y)).graph.get_operations()
    adds = [o for o in operations if o.type == "AssignAddVariableOp" and o.inputs[1].dtype == tf.int64]
    assert len(adds) == 1
    step((x, y))
    step((x, y))
    assert int(trainable.optimizer.iterations) == 2
