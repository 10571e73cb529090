"""What a model was compiled with is used, or refused by its name before the first step."""

import inspect
import re
from dataclasses import replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training import models
from tests.unit.training.jobs import setup, with_data
from tests.unit.training.prepared import built, job_of, network, refusal
from trainer.job.errors import UserError
from trainer.training.model import batches
from trainer.training.model.build_model import build_model
from trainer.training.model.state import build_state, prepare
from trainer.training.model.step import make_step

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
TWO, SERVED = {"worker": 2}, {"worker": 2, "ps": 1}


def compiled(**given: Any) -> Any:
    """Functions among what is given are called for each model."""
    return lambda: models.plain(**each_new(given))


def each_new(given: dict[str, Any]) -> dict[str, Any]:
    return {key: value() if inspect.isfunction(value) else value for key, value in given.items()}


def unregularized(**given: Any) -> Any:
    def make() -> Any:
        model = network()
        model.compile(**each_new(given))
        return model

    return make


REDUCED = {"loss": keras.losses.MeanSquaredError(reduction="mean_with_sample_weight")}
NONE = {"loss": keras.losses.MeanSquaredError(reduction=None)}


def scaled() -> Any:
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD())


class Pair(keras.metrics.MeanSquaredError):  # type: ignore[misc]
    """Gives several figures, as F1Score does by default."""

    def result(self) -> Any:
        return keras.ops.stack([super().result()] * 2)


# Each: what compile is given, the tasks, and what is reported.
BAD: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"run_eagerly": True}, {}, "model.compile: run_eagerly=True: the loop runs steps in a graph; remove it"),
    (
        {"steps_per_execution": 20},
        {},
        "model.compile: steps_per_execution=20: remove it, and set train.steps_per_call=20",
    ),
    ({"jit_compile": True}, TWO, "model.compile: jit_compile=True: XLA cannot compile a step of 2 replicas; remove it"),
    (
        {"jit_compile": True},
        SERVED,
        "model.compile: jit_compile=True: XLA cannot compile a step of parameter_server; remove it",
    ),
    (
        REDUCED,
        TWO,
        "the loss mean_squared_error has reduction 'mean_with_sample_weight', which 2 replicas cannot compute of the "
        "whole batch; use 'sum_over_batch_size', or one replica",
    ),
    (
        NONE,
        TWO,
        "the loss mean_squared_error has reduction None, which 2 replicas cannot compute of the whole batch; use "
        "'sum_over_batch_size', or one replica",
    ),
    (
        {"metrics": lambda: [Pair(name="pair")]},
        {},
        "the metric 'pair' of compile gives 2 values, and must give one; give it average='macro', or leave it out",
    ),
    (
        {"optimizer": scaled},
        {},
        "model.compile: LossScaleOptimizer is for float16; give its inner optimizer, or set "
        "train.mixed_precision=float16",
    ),
]


@pytest.mark.parametrize(("given", "tasks", "message"), BAD, ids=range(len(BAD)))
def test_what_the_loop_cannot_follow_is_refused(given: dict[str, Any], tasks: dict[str, Any], message: str) -> None:
    assert refusal(unregularized(**given), tasks or None) == f"workload: digits: {message}"


def test_functions_that_run_eagerly_are_refused() -> None:
    tf.config.run_functions_eagerly(True)
    try:
        found = refusal(network)
    finally:
        tf.config.run_functions_eagerly(False)
    rule = "tf.config.run_functions_eagerly(True): the loop runs steps in a graph; remove it"
    assert found == f"workload: digits: {rule}"


@pytest.mark.parametrize("given", [REDUCED, NONE, {"loss": "mse"}])
def test_one_replica_takes_any_loss(given: dict[str, Any]) -> None:
    assert built(job_of(unregularized(**given)))[1] == []


SUM = keras.losses.MeanSquaredError(reduction="sum")


def test_a_loss_that_is_a_sum_stays_as_it_is_for_other_copies_of_the_model() -> None:
    def make() -> Any:
        model = unregularized(loss=SUM)()
        model.own = SUM
        return model

    one, three = tf.constant([[1.0]]), tf.constant([[3.0]])
    for _ in range(2):
        job = job_of(make, TWO)
        trained, copy = built(job)[0].model, build_model(job)
        assert [float(trained.compute_loss(None, one, three)), float(trained.own(one, three))] == [8.0, 8.0]
        copy.evaluate(tf.zeros((1, 8)), one, verbose=0)
        assert [float(copy.compute_loss(None, one, three)), float(copy.own(one, three))] == [4.0, 4.0]


class Named(Pair):
    def result(self) -> Any:
        return {"one": super().result()[0], "other": 1.0}


class Clips(keras.optimizers.SGD):  # type: ignore[misc]
    def apply_gradients(self, pairs: Any) -> Any:
        return super().apply_gradients([(keras.ops.clip(g, -1, 1), v) for g, v in pairs])


def remembering() -> Any:
    x = keras.Input(batch_shape=(16, 8))
    model = keras.Model(x, keras.layers.Dense(1)(keras.layers.LSTM(4, stateful=True, name="own")(x[:, None, :])))
    model.compile("sgd", "mse")
    return model


def test_what_replicas_would_train_otherwise_is_refused() -> None:
    what = "workload: digits: "
    rule = "is stateful: it keeps the state of the last batch, and 2 replicas train on different batches; leave"
    assert refusal(remembering, TWO).startswith(f"{what}layer own {rule}")
    assert "the workers of parameter_server train on different batches" in refusal(remembering, SERVED)
    rule = "has its own apply_gradients, which would not see the gradients of the whole batch; rename it to apply(self,"
    assert refusal(compiled(optimizer=lambda: Clips(0.1)), TWO).startswith(f"{what}Clips {rule}")
    assert refusal(network, optimizer=lambda *_: Clips(0.1)).startswith(f"{what}Clips {rule}")
    assert built(job_of(compiled(optimizer=lambda: Clips(0.1))))[1] == []
    expected = f"{what}the metric 'pair' of compile gives 2 values, and must give one; give it average='macro'"
    assert refusal(unregularized(metrics=lambda: [Named(name="pair")])).startswith(expected)


def test_a_model_has_some_loss() -> None:
    expected = "workload: digits: model.train_step: ValueError: No loss to compute. Provide a `loss` argument in"
    assert refusal(unregularized(optimizer="sgd")).startswith(expected)


def test_integers_of_a_metric_are_whole_after_a_mean_over_replicas() -> None:
    state, _ = built(job_of(compiled(metrics=lambda: [models.Counted()])))
    assert state.compiled_step is not None
    sums = np.full(state.compiled_step.width, 29.0)
    assert state.compiled_step.by_name(sums * (1 - 1e-7), 1.0)["counted"] == 29


def test_layers_in_float16_need_it_in_the_spec() -> None:
    def model() -> Any:
        half = keras.layers.Dense(4, dtype="mixed_float16", name="half")
        return keras.Sequential([keras.Input((8,)), keras.Sequential([keras.Input((8,)), half]), keras.layers.Dense(2)])

    expected = (
        "workload: digits: layer half computes in float16, and train.mixed_precision is none; set "
        "train.mixed_precision=float16, and no policy in the file"
    )
    assert refusal(model) == expected


@pytest.fixture
def _float16() -> Any:
    before = keras.mixed_precision.dtype_policy()
    keras.mixed_precision.set_dtype_policy("mixed_float16")
    yield
    keras.mixed_precision.set_dtype_policy(before)


FLOAT16 = {"mixed_precision": "float16"}


@pytest.mark.usefixtures("_float16")
def test_float16_scales_the_loss_in_the_way_of_compile() -> None:
    def optimizer() -> Any:
        sgd = keras.optimizers.SGD()
        return keras.optimizers.LossScaleOptimizer(sgd, initial_scale=256.0, dynamic_growth_steps=7)

    state, _ = built(job_of(compiled(optimizer=optimizer), train=FLOAT16))
    assert (float(state.optimizer.dynamic_scale), state.optimizer.dynamic_growth_steps) == (256.0, 7)
    assert state.model.optimizer is state.optimizer
    expected = (
        "workload: digits: model.compile: auto_scale_loss=False: train.mixed_precision: float16 scales the loss; "
        "remove it, or set bfloat16"
    )
    assert refusal(compiled(auto_scale_loss=False), train=FLOAT16) == expected


@pytest.mark.usefixtures("_float16")
def test_float16_needs_a_train_step_that_scales_the_loss_of_one_optimizer() -> None:
    what = "train.mixed_precision: float16: workload: digits: train_step "
    assert refusal(models.autoencoder, train=FLOAT16).startswith(
        f"{what}does not scale its loss; take the gradients of"
    )
    assert refusal(models.adversarial, train=FLOAT16).startswith(f"{what}uses 2 optimizers (SGD, Adam)")


class Odd(models.Autoencoder):
    """A train_step that returns what `gives` computes."""

    gives: Any = None

    def train_step(self, data: Any) -> Any:
        for _ in range(2):
            with tf.GradientTape() as tape:
                loss = keras.ops.mean(self.decoder(self.encoder(data[0])))
            self.optimizer.apply(tape.gradient(loss, self.trainable_weights), self.trainable_weights)
        return {"loss": loss} if self.gives is None else self.gives(data)


def odd(gives: Any = None) -> Any:
    def make() -> Any:
        model = Odd()
        model.compile("sgd")
        model.gives = gives
        return model

    return make


def test_a_train_step_gives_one_number_for_each_name() -> None:
    what = "workload: digits: train_step gives "
    assert (
        refusal(odd(lambda data: {"seen": data[0]})) == f"{what}seen of shape (16, 8); return one number, as its mean"
    )
    expected = f"{what}nothing; return a dict of numbers by name, as {{'loss': loss}}"
    assert refusal(odd(lambda data: {})) == expected


def test_a_parameter_server_counts_a_step_by_the_last_update() -> None:
    assert refusal(odd(), SERVED).startswith("workload: digits: train_step applies SGD 2 times, and parameter_server")
    state, _ = built(job_of(models.adversarial, SERVED))
    assert state.optimizer is state.model.g_optimizer
    assert state.others == [state.model.d_optimizer]
    assert len(state.variables) == len(state.model.variables) + len(state.optimizer.variables) + 2, "and of SGD"


class Idle(models.Autoencoder):
    def train_step(self, data: Any) -> Any:
        return {"loss": keras.ops.mean(self.decoder(self.encoder(data[0])))}


def test_a_train_step_uses_an_optimizer() -> None:
    def idle() -> Any:
        model = Idle()
        model.compile("sgd")
        return model

    assert refusal(idle).startswith("workload: digits: train_step uses no optimizer; apply gradients by one")
    assert refusal(compiled(optimizer=None)) == "workload: digits: model.compile: has no optimizer; give one"


def test_averages_are_those_of_the_optimizer_of_compile() -> None:
    def averaging(**given: Any) -> Any:
        def make() -> Any:
            model = models.adversarial()
            for name, value in given.items():
                setattr(model, name, value())
            return model

        return make

    def kept() -> Any:
        return keras.optimizers.SGD(use_ema=True)

    what = "workload: digits: train_step: SGD has use_ema=True; only the optimizer of compile, if it is alone,"
    assert refusal(averaging(d_optimizer=kept)).startswith(what)
    assert refusal(averaging(optimizer=kept)).startswith(what)


def test_the_optimizer_of_compile_is_built_on_all_trainable_variables_in_their_order() -> None:
    class Backwards(models.Autoencoder):
        def train_step(self, data: Any) -> Any:
            variables = self.trainable_variables[::-1][:3]
            with tf.GradientTape() as tape:
                loss = keras.ops.mean(self.decoder(self.encoder(data[0])))
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return {"loss": loss}

    def make() -> Any:
        model = Backwards()
        model.compile(keras.optimizers.SGD(use_ema=True))
        return model

    state, _ = built(job_of(make))
    shapes = [tuple(v.shape) for v in state.optimizer.variables]
    assert shapes == [(), (), *(tuple(v.shape) for v in state.model.trainable_variables)]


def test_a_train_step_of_ones_own_is_compiled() -> None:
    expected = (
        "workload: digits: the model has its own train_step and is not compiled; call model.compile(...), and "
        "super().compile() in a compile of its own"
    )
    assert refusal(models.Autoencoder) == expected


@pytest.mark.parametrize("key", ["optimizer", "learning_rate", "learning_rates", "learning_rate_scaling"])
def test_the_spec_sets_no_rate_then(key: str) -> None:
    value = {"optimizer": "sgd", "learning_rates": {16: 0.1}, "learning_rate_scaling": "sqrt"}.get(key, 0.1)
    rest = "remove it from the spec"
    expected = f"train.{key}: workload digits: model() gives a compiled model; {rest}"
    assert refusal(compiled(), train={key: value}) == expected
    found = refusal(network, train={key: value}, optimizer=lambda steps, replicas: None)
    assert found == f"train.{key}: workload digits: optimizer() sets it; {rest}"


@pytest.mark.parametrize(("part", "name"), [("loss", "loss()"), ("metrics", "METRICS"), ("optimizer", "optimizer()")])
def test_what_compile_was_given_is_given_once(part: str, name: str) -> None:
    expected = f"workload: digits: model() gives a compiled model; remove {name}"
    assert refusal(compiled(), **{part: {}}) == f"{expected}, or compile()"
    job = job_of(compiled(), **{part: {}})
    with pytest.raises(UserError, match=rf"^{re.escape(expected)}$"):
        built(replace(job, spec=job.spec.model_copy(update={"api": "keras_fit"})))


# optimizer(steps, replicas) of the workload. ------------------------------------------------------


def test_an_optimizer_of_the_workload_knows_the_steps_and_the_replicas() -> None:
    asked: list[tuple[int, int]] = []

    def optimizer(steps: int, replicas: int) -> Any:
        asked.append((steps, replicas))
        return keras.optimizers.AdamW(keras.optimizers.schedules.CosineDecay(0.1, steps), clipnorm=1.0)

    state, _ = built(job_of(network, TWO, train={"epochs": 3}, optimizer=optimizer))
    assert asked == [(3 * 640 // 32, 2)]
    assert isinstance(state.optimizer, keras.optimizers.AdamW)
    assert state.optimizer.built


@pytest.mark.parametrize(
    ("gives", "message"),
    [
        (lambda: None, "must give a Keras optimizer, gave NoneType"),
        (scaled, "gives a LossScaleOptimizer; give its inner optimizer, and set "
         "train.mixed_precision=float16"),
    ],
)  # fmt: skip
def test_it_gives_an_optimizer(gives: Any, message: str) -> None:
    assert refusal(network, optimizer=lambda *_: gives()) == f"workload: digits: optimizer() {message}"


@pytest.mark.parametrize("third", ["accuracy", ["accuracy"], ["accuracy", "mae"], lambda: [keras.metrics.AUC()]])
def test_metrics_as_the_third_argument_of_compile_are_refused_with_the_fix(third: Any) -> None:
    def make() -> Any:
        model = network()
        model.compile("sgd", "mse", third() if callable(third) else third)
        return model

    assert refusal(make).endswith("compile takes loss_weights as its third argument: write metrics=[...]")


# jit_compile. -------------------------------------------------------------------------------------


def losses(*, jit: bool | str) -> list[float]:
    job = replace(job_of(compiled(jit_compile=jit)), spec=setup(strategy="one_device", train={"batch_size": 16}).spec)
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with strategy.scope():
        state = build_state(job)
        prepare(strategy, job, state, job.training)
        step = make_step(strategy, job, state, batches.replica_spec(job, job.training))
    iterator = iter(batches.synchronous(strategy, job, job.training, 0))
    run = tf.function(lambda: strategy.run(step.run, (next(iterator),))[1], autograph=False)
    functions = run.get_concrete_function().graph.as_graph_def().library.function
    assert any(f.attr["_XlaMustCompile"].b for f in functions if "_XlaMustCompile" in f.attr) == (jit is True)
    return [float(run()) for _ in range(5)]


def test_one_replica_may_be_compiled_by_xla_if_that_is_asked_for() -> None:
    assert losses(jit=True) == pytest.approx(losses(jit="auto"), rel=1e-4)


def test_an_error_that_keras_finds_in_a_step_is_the_users() -> None:
    """A metric with one value per example beside a mask of their parts: Keras multiplies both."""

    def make() -> Any:
        inputs = keras.Input((4, 8))
        model = keras.Model(inputs, keras.layers.Dense(1)(keras.layers.Masking()(inputs)))
        model.compile("sgd", loss="mse", metrics=[lambda y, prediction: keras.ops.mean(prediction, (1, 2))])
        return model

    x = np.ones((64, 4, 8), "float32")
    job = with_data(job_of(make), lambda shard: (x, x[..., :1]))
    state, _ = built(job)
    spec = batches.replica_spec(job, job.training)
    step = make_step(tf.distribute.get_strategy(), job, state, spec)
    with pytest.raises(UserError, match=r"^workload: digits: model\.train_step: ValueError: "):
        tf.function(step.run, autograph=False).get_concrete_function(spec)


class Nested(keras.Model):  # type: ignore[misc]
    """Applies its optimizer within a graph of its own, as every second step by tf.cond."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.dense, self.kind = keras.layers.Dense(1), kind

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        x, _ = data
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(self(x) ** 2)
        gradients = tape.gradient(loss, self.trainable_variables)

        def apply() -> Any:
            self.optimizer.apply(gradients, self.trainable_variables)
            return tf.constant(0)

        if self.kind == "cond":
            tf.cond(loss > 1, apply, lambda: tf.constant(0))
        elif self.kind == "loop":
            tf.while_loop(lambda i: i < 2, lambda i: i + 1 + apply(), [tf.constant(0)])
        else:
            tf.function(apply, autograph=False)()
        return {"loss": loss}


@pytest.mark.parametrize("kind", ["cond", "loop", "function"])
def test_an_update_within_another_graph_is_refused_where_replicas_merge(kind: str) -> None:
    def make() -> Any:
        model = Nested(kind)
        model.compile("sgd")
        return model

    assert built(job_of(make))[1] == []
    job, strategy = job_of(make), tf.distribute.MirroredStrategy(["CPU:0"])
    with strategy.scope(), pytest.raises(UserError) as caught:
        prepare(strategy, job, build_state(job), job.training)
    assert str(caught.value) == (
        "workload: digits: train_step applies SGD within tf.cond, a loop or a tf.function, which cannot be under "
        "multi_worker_mirrored: apply it in each step, with gradients times 0 where it is to do nothing, as "
        "tf.where(condition, gradient, 0.0), or use one_device"
    )
