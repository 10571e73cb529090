"""Each call of model() gives a model of its own, with the same names."""

import functools
import random
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training import jobs, models
from tests.unit.training.jobs import with_workload
from tests.unit.training.prepared import built, job_of, network, refusal
from trainer.job.errors import UserError
from trainer.training.model.build_model import build_copy, build_model
from trainer.training.model.state import build_state
from trainer.training.private import keras_private

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def test_copies_of_a_model_have_the_same_names() -> None:
    def make() -> Any:
        return models.plain(metrics=[keras.metrics.AUC(), keras.metrics.AUC(curve="PR")])

    def names(model: Any) -> list[str]:
        return [each.name for each in (*model.layers, *keras_private.metrics_of_compile(model))]

    job = job_of(make)
    trained = names(built(job)[0].model)
    assert trained == names(build_model(job)) == names(build_model(job))
    assert len(set(trained)) == len(trained)


@pytest.mark.parametrize("form", ["functional", "sequential"])
def test_copies_have_the_same_names_beside_layers_that_are_kept(form: str) -> None:
    @functools.cache
    def kept(mean: float) -> Any:
        return keras.layers.Normalization(mean=mean, variance=1.0)

    def make() -> Any:
        layers = [kept(1.0), keras.layers.Normalization(mean=2.0, variance=1.0), kept(3.0), keras.layers.Dense(1)]
        x = keras.Input((8,))
        model = keras.Sequential([x, *layers])
        if form == "functional":
            model = keras.Model(x, functools.reduce(lambda value, layer: layer(value), layers, x))
        model.compile("sgd", "mse", metrics=[keras.metrics.AUC()])
        return model

    def names(model: Any) -> list[str]:
        return [each.name for each in (*model.layers, *keras_private.metrics_of_compile(model))]

    job = job_of(make)
    first = names(build_model(job))
    assert first == names(build_model(job)) == names(build_model(job))
    assert len(set(first)) == len(first)


def test_a_name_that_is_used_twice_is_refused_in_copies_too() -> None:
    def make() -> Any:
        layers = [keras.layers.Dense(1, name="dense") for _ in range(2)]
        return keras.Sequential([keras.Input((8,)), *layers[: 1 + again]])

    again = False
    build_model(job_of(make))
    again = True
    with pytest.raises(UserError, match="should have unique names"):
        build_model(job_of(make))


CREATED = {
    "Dense": lambda: keras.layers.Dense(4, name="own"),
    "Functional": lambda: network_of("own"),
    "Adam": lambda: keras.optimizers.Adam(name="own"),
    "R2Score": lambda: keras.metrics.R2Score(name="own"),
}


def network_of(name: str) -> Any:
    x = keras.Input((8,))
    return keras.Model(x, keras.layers.Dense(4)(x), name=name)


@pytest.mark.parametrize("kind", CREATED)
@pytest.mark.parametrize("when", ["at the top", "in the first call"])
def test_each_model_has_its_own_layers_optimizers_and_metrics(kind: str, when: str) -> None:
    @functools.cache
    def part() -> Any:
        return CREATED[kind]()

    def make() -> Any:
        layers = [part()] if kind in ("Dense", "Functional") else []
        model = keras.Sequential([keras.Input((8,)), *layers, keras.layers.Dense(1)])
        model.compile(part() if kind == "Adam" else "sgd", "mse", metrics=[part()] if kind == "R2Score" else None)
        return model

    if when == "at the top":
        part()
    else:
        built(job_of(make))
    rule = "was created outside it, and several models would share it; create it within model()"
    assert refusal(make) == f"workload: digits: model(): {kind} 'own' {rule}"


class Several(keras.Model):  # type: ignore[misc]
    """Keeps its optimizers in a collection."""

    def __init__(self, optimizers: Any) -> None:
        super().__init__()
        self.optimizers, self.dense = optimizers, keras.layers.Dense(1)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        raise AssertionError


@pytest.mark.parametrize(
    "kept_in", [lambda o: [keras.optimizers.SGD(), o], lambda o: {"a": (o,)}], ids=["list", "tuple in a dict"]
)
def test_each_model_has_its_own_optimizers_in_a_list_too(kept_in: Any) -> None:
    kept = keras.optimizers.Adam(name="own")

    def make() -> Any:
        model = Several(kept_in(kept))
        model.compile("sgd", "mse")
        return model

    rule = "was created outside it, and several models would share it; create it within model()"
    assert refusal(make) == f"workload: digits: model(): Adam 'own' {rule}"


@pytest.mark.parametrize("kind", [list, dict])
def test_a_collection_of_the_model_may_hold_itself(kind: Any) -> None:
    kept = keras.optimizers.Adam(name="own")

    def make(*optimizers: Any) -> Any:
        model = Several(kind())
        items = [model.optimizers, *optimizers]
        model.optimizers.update(dict(enumerate(items))) if kind is dict else model.optimizers.extend(items)
        model.compile("sgd", "mse")
        return model

    assert build_model(job_of(make)).built
    assert "model(): Adam 'own' was created outside it" in refusal(lambda: make(kept))


def test_an_optimizer_of_the_workload_is_a_new_one() -> None:
    kept = keras.optimizers.SGD(name="own")
    rule = "was created outside it, and several models would share it; create it within optimizer()"
    assert refusal(network, optimizer=lambda *_: kept) == f"workload: digits: optimizer(): SGD 'own' {rule}"


class Plain(keras.layers.Layer):  # type: ignore[misc]
    """Without __init__."""

    def build(self, _: Any) -> None:
        self.scale = self.add_weight(shape=(8,))

    def call(self, x: Any) -> Any:
        return x * self.scale


def test_layers_of_all_forms_are_new() -> None:
    def make() -> Any:
        model = keras.Sequential([keras.Input((8,)), Plain(), Plain(name="second", trainable=True), network()])
        copied = keras.models.clone_model(model)
        copied.compile("sgd", "mse")
        return copied

    assert [layer.get_config()["name"] for layer in built(job_of(make))[0].model.layers[1:2]] == ["second"]


def test_layers_that_are_not_trained_may_be_shared() -> None:
    adapted = keras.layers.Normalization()
    adapted.adapt(models.X)
    frozen = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    frozen.trainable = False

    def make() -> Any:
        model = keras.Sequential([keras.Input((8,)), adapted, frozen, keras.layers.Dense(1)])
        model.compile("sgd", "mse")
        return model

    for _ in range(2):
        assert built(job_of(make))[1] == []


class Subclassed(keras.Model):  # type: ignore[misc]
    """As people write them: without Input or build()."""

    def __init__(self, wrong: bool = False) -> None:
        super().__init__()
        self.wrong, self.flatten, self.dense = wrong, keras.layers.Flatten(), keras.layers.Dense(10)

    def call(self, x: Any) -> Any:
        if self.wrong:
            raise ValueError("no such input")
        return self.dense(self.flatten(x))


def test_a_model_that_is_not_built_is_built_for_the_data() -> None:
    for make in (Subclassed, lambda: keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(10)])):
        keras.utils.set_random_seed(0)
        expected = make()
        expected(np.zeros((1, 8, 8, 1), "float32"))
        found = build_state(with_workload(model=make)).model
        np.testing.assert_array_equal(found.get_weights()[0], expected.get_weights()[0])
        assert found.count_params() == 650


class Attends(keras.layers.Layer):  # type: ignore[misc]
    """MultiHeadAttention creates the layers that it consists of in its build()."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = keras.layers.MultiHeadAttention(2, 4)

    def call(self, x: Any) -> Any:
        return x + self.attention(x, x)


class Builds(keras.Model):  # type: ignore[misc]
    """Creates its layer in build()."""

    def build(self, shape: Any) -> None:
        self.dense = keras.layers.Dense(10)
        self.dense.build((shape[0], 64))
        self.built = True

    def call(self, x: Any) -> Any:
        return self.dense(keras.ops.reshape(x, (-1, 64)))


@pytest.mark.parametrize(
    ("make", "weights"),
    [(lambda: keras.Sequential([keras.layers.Reshape((8, 8)), Attends()]), 8), (Builds, 2)],
    ids=["MultiHeadAttention", "build"],
)
def test_layers_may_create_others_when_they_are_built(make: Any, weights: int) -> None:
    one, other = (build_model(with_workload(model=make)) for _ in range(2))
    assert len(one.weights) == len(other.weights) == weights
    assert not {id(v) for v in one.variables} & {id(v) for v in other.variables}


def test_a_layer_at_the_top_of_the_file_is_refused_before_it_is_built_too() -> None:
    for shared in (keras.layers.Dense(10, name="own"), Attends()):
        with pytest.raises(UserError, match=rf"'{shared.name}' was created outside it, and several models would share"):
            build_model(with_workload(model=lambda: keras.Sequential([keras.layers.Reshape((8, 8)), shared])))  # noqa: B023


def test_a_model_that_cannot_be_built_is_refused() -> None:
    reason = r"model\(\) must give a built model, and a call does not build it \(ValueError: no such input"
    with pytest.raises(UserError, match=reason):
        build_state(with_workload(model=lambda: Subclassed(wrong=True)))


class Noisy(keras.layers.Layer):  # type: ignore[misc]
    """Has no weights, and so is built by its first call only."""

    def call(self, x: Any) -> Any:
        return x + 1


class Uncalled(keras.Model):  # type: ignore[misc]
    """A GAN has no call()."""

    def __init__(self, *parts: Any) -> None:
        super().__init__()
        self.parts = list(parts)

    def train_step(self, data: Any) -> Any:
        return {}


def test_a_model_without_call_may_have_layers_without_weights() -> None:
    model = build_model(with_workload(model=lambda: Uncalled(Noisy(), jobs.network())))
    assert model.built
    assert all(part.built for part in model.parts)
    with pytest.raises(UserError, match="must give a built model"):
        build_model(with_workload(model=lambda: Uncalled(Noisy(), keras.Sequential([keras.layers.Dense(3)]))))


class Scaled(keras.Model):  # type: ignore[misc]
    """Has a step and a build() of its own; its layers are built before."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = jobs.network(keras.layers.Dense(10))

    def build(self, shape: Any) -> None:
        self.scale = self.add_weight(shape=(), initializer="ones", name="scale")
        self.built = True

    def call(self, x: Any) -> Any:
        return self.scale * self.dense(x)

    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


class BuildsAndSteps(Builds):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


@pytest.mark.parametrize(("make", "weights"), [(Scaled, 3), (BuildsAndSteps, 2)])
def test_a_model_with_its_own_step_is_built_by_its_build(make: Any, weights: int) -> None:
    model = build_model(with_workload(model=make))
    assert len(model.trainable_variables) == weights
    assert model(np.zeros((2, 8, 8), "float32")).shape == (2, 10)


class Generates(Uncalled):
    """Its call() takes noise, not data."""

    def call(self, noise: Any) -> Any:
        return self.parts[0](noise)


def test_a_model_with_its_own_step_may_have_a_call_of_other_inputs() -> None:
    def make() -> Any:
        return Generates(keras.Sequential([keras.Input((3,)), keras.layers.Dense(4)]))

    assert build_model(with_workload(model=make)).built


class OfItsOwnStep(Subclassed):
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


@pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer:UserWarning")
@pytest.mark.parametrize("kind", [Subclassed, OfItsOwnStep])
def test_a_model_that_is_only_marked_as_built_is_built(kind: Any) -> None:
    model = build_model(with_workload(model=lambda: marked(kind())))
    assert [v.shape for v in model.trainable_variables] == [(64, 10), (10,)]
    with pytest.raises(UserError, match=r"does not build it \(ValueError: no such input"):
        build_model(with_workload(model=lambda: marked(Subclassed(wrong=True))))


def marked(model: Any) -> Any:
    model.build((None, 8, 8))
    return model


@pytest.mark.filterwarnings("ignore:`build\\(\\)` was called on layer:UserWarning")
def test_a_model_with_its_own_step_may_have_a_layer_without_variables_that_it_never_calls() -> None:
    model = build_model(with_workload(model=lambda: marked(OfItsOwnStep(wrong=True))))
    assert (model.built, model.dense.built) == (True, False)


def test_a_model_of_keras_2_is_refused_as_such() -> None:
    old = type("Sequential", (), {"__module__": "tf_keras.src.engine.sequential"})
    gave = r"gave Sequential of tf_keras \(Keras 2\); import keras, or leave TF_USE_LEGACY_KERAS out$"
    with pytest.raises(UserError, match=rf"^workload: digits: model\(\) must give a Keras model, {gave}"):
        build_model(with_workload(model=lambda: old()))


def test_a_model_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match=r"^workload: digits: model\(\) must give a Keras model, gave int$"):
        build_state(with_workload(model=lambda: 3))


DRAWS = {
    "Python": lambda: random.random(),
    "NumPy": lambda: np.random.normal(),
    "Keras": lambda: float(keras.random.normal(())),
    "TensorFlow": lambda: float(tf.random.normal(())),
}


@pytest.mark.parametrize("kind", DRAWS)
def test_a_copy_has_the_constants_that_model_draws(kind: str) -> None:
    drawn: list[float] = []

    def make() -> Any:
        drawn.append(DRAWS[kind]())
        return network()

    job = job_of(make)
    build_state(job)
    DRAWS[kind]()
    for _ in range(2):
        build_copy(job)
    assert drawn == drawn[:1] * 3


@pytest.mark.parametrize("kind", ["Python", "NumPy", "Keras"])
def test_a_copy_draws_no_numbers_of_the_program(kind: str) -> None:
    def make() -> Any:
        DRAWS[kind]()
        return network()

    def numbers(copies: int) -> list[float]:
        job = job_of(make)
        build_state(job)
        found = [DRAWS[kind]()]
        for _ in range(copies):
            build_copy(job)
        return [*found, DRAWS[kind]()]

    assert numbers(0) == numbers(1) == numbers(2)
    assert len(set(numbers(1))) == 2


def placed(places: Any) -> Any:
    def make() -> Any:
        x = keras.Input((8,), dtype="int32")
        table = keras.layers.Embedding(8, 4, name="places")
        symbols = keras.layers.Embedding(9, 4)(x) + table(places(x))
        return keras.Model(x, keras.layers.Dense(1)(keras.layers.Flatten()(symbols)))

    return make


def first_of_another() -> Any:
    x = keras.Input((8,))
    attends = Attends()(keras.layers.Reshape((4, 2))(keras.layers.Dense(8)(x)))
    whole = keras.Model(x, keras.layers.Dense(3)(attends))
    return keras.Model(whole.input, whole.layers[1].output)


class Compares(keras.losses.Loss):  # type: ignore[misc]
    """Has a model of its own, which is not to be trained."""

    def __init__(self) -> None:
        super().__init__()
        self.by = network()

    def call(self, y: Any, prediction: Any) -> Any:
        return keras.ops.mean((y - prediction) ** 2)


def with_a_loss() -> Any:
    model = network()
    model.compile("sgd", Compares())
    return model


@pytest.mark.parametrize(
    ("make", "left_out"),
    [
        (placed(lambda _: keras.ops.arange(8)), "the weights of Embedding 'places' are not in the model and are not"),
        (placed(lambda x: keras.ops.zeros_like(x) + keras.ops.arange(8, dtype="int32")), ""),
        (first_of_another, ""),
        (with_a_loss, ""),
        (Builds, ""),
        (lambda: keras.Sequential([keras.layers.Reshape((8, 1)), Attends()]), ""),
    ],
)
def test_weights_that_are_not_in_the_model_are_reported(make: Any, left_out: str) -> None:
    state = build_state(job_of(make))
    assert len(state.warnings) == bool(left_out)
    assert left_out in "".join(state.warnings)
