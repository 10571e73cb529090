"""Private parts of Keras. A test here fails when an upgrade changes what a patch relies on."""

import ast
import re
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.unit.training.jobs import batch, setup, step_of
from trainer.training.exchange import whole_batch
from trainer.training.model.state import build_state
from trainer.training.private import keras_patches, keras_private
from trainer.training.private.adam import Adam
from trainer.training.private.keras_patches import AddUp

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def test_a_patched_keras_counter_is_one_atomic_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    variable = keras.src.backend.tensorflow.core.Variable
    monkeypatch.setattr(variable, "assign_add", variable.assign_add)  # so that it is put back

    def operations() -> list[str]:
        counter = keras.Variable(0, dtype="int64")
        graph = tf.function(lambda: counter.assign_add(1)).get_concrete_function().graph
        return [operation.type for operation in graph.get_operations() if "Variable" in operation.type]

    assert operations()[:2] == ["ReadVariableOp", "AssignVariableOp"], "or the patch is needed no more"
    keras_patches.make_counters_atomic()
    assert operations().count("AssignAddVariableOp") == 1
    assert "AssignVariableOp" not in operations()


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_a_patched_embedding_reads_its_rows_only(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    numpy = keras.src.backend.tensorflow.numpy
    monkeypatch.setattr(numpy, "take", numpy.take)  # so that it is put back
    layer = keras.layers.Embedding(9, 4, dtype=policy)
    layer.build()
    words = tf.constant([[3, -1, 0], [3, 8, 5]])

    def traced() -> tuple[list[str], list[Any]]:
        @tf.function(autograph=False)
        def step() -> Any:
            with tf.GradientTape() as tape:
                found = layer(words)
                total = tf.reduce_sum(tf.cast(found, tf.float32) ** 3)
            gradient = tape.gradient(total, layer.embeddings.value)
            assert isinstance(gradient, tf.IndexedSlices) or policy != "float32"
            return found, tf.convert_to_tensor(gradient)

        operations = [each.type for each in step.get_concrete_function().graph.get_operations()]
        return operations, [np.array(tf.cast(each, tf.float32)) for each in step()]

    plain, expected = traced()
    assert "ReadVariableOp" in plain, "or the patch is needed no more"
    keras_patches.look_up_rows_only()
    patched, found = traced()
    assert "ResourceGather" in patched
    assert "ReadVariableOp" not in patched
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_a_patched_optimizer_counts_its_steps_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    variable = keras.src.backend.tensorflow.core.Variable
    monkeypatch.setattr(variable, "assign_add", variable.assign_add)
    keras_patches.make_counters_atomic()
    digits = setup(train={"optimizer": "sgd"})
    state = build_state(digits)
    step = tf.function(step_of(digits, state))
    x, y = batch()
    operations = step.get_concrete_function((x, y)).graph.get_operations()
    adds = [o for o in operations if o.type == "AssignAddVariableOp" and o.inputs[1].dtype == tf.int64]
    assert len(adds) == 1
    step((x, y))
    step((x, y))
    assert int(state.optimizer.iterations) == 2


class Counts(keras.Model):  # type: ignore[misc]
    """Counts its steps, in a variable of its own and in one that the scope holds."""

    def __init__(self) -> None:
        super().__init__()
        self.up = self.add_weight(name="up", initializer="zeros", trainable=False)
        self.down = self.add_weight(name="down", initializer="zeros", dtype="int32", trainable=False)
        self.held = self.add_weight(name="held", initializer="zeros", trainable=False)

    def count(self) -> None:
        self.up.assign_add(1.0)
        self.down.assign_sub(1)
        self.held.assign_add(1.0)


def test_a_counter_of_a_train_step_is_atomic_too(monkeypatch: pytest.MonkeyPatch) -> None:
    variable = keras.src.backend.tensorflow.core.Variable
    for name in ("assign_add", "assign_sub"):
        monkeypatch.setattr(variable, name, getattr(variable, name))  # so that it is put back
    keras_patches.make_counters_atomic()
    model = Counts()

    @tf.function(autograph=False)
    def step() -> Any:
        with keras_patches.hold([model.held], [np.zeros([], "float32")]) as scope:
            model.count()
            return scope.get_current_value(model.held)

    kinds = [each.type for each in step.get_concrete_function().graph.get_operations() if "Variable" in each.type]
    assert sorted(kinds) == ["AssignAddVariableOp", "AssignSubVariableOp"]
    assert [float(step()), float(step())] == [1.0, 1.0]
    assert [float(v) for v in (model.up, model.down, model.held)] == [2.0, -2.0, 0.0]


class WithoutCall(keras.Model):  # type: ignore[misc]
    """Its step calls a part of it."""

    def __init__(self) -> None:
        super().__init__()
        self.part = keras.layers.Dense(3)
        self.part.build((None, 8))

    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


def test_losses_of_compile_are_there_for_a_train_step_without_call() -> None:
    batch = (tf.TensorSpec((16, 8)), tf.TensorSpec((16,), tf.int32))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = WithoutCall()
    model.compile("sgd", loss, metrics=[keras.metrics.SparseCategoricalAccuracy(name="own")])
    keras_private.build_compiled(model, batch)
    y, logits = tf.zeros((16,), tf.int32), tf.one_hot([0] * 12 + [1] * 4, 3) * 50.0
    assert float(model.compute_loss(None, y, logits)) == pytest.approx(12.5)
    assert float(model.compute_metrics(None, y, logits)["own"]) == 0.75
    assert not model.optimizer.built
    model.compile("sgd", loss, metrics=["accuracy"])
    with pytest.raises(ValueError, match=r"^'accuracy' depends on the shape of predictions, and .* define call\("):
        keras_private.build_compiled(model, batch)


def test_a_compiled_optimizer_counts_steps_and_not_updates() -> None:
    variable = keras.Variable([4.0])
    optimizer = keras.optimizers.SGD(1.0, gradient_accumulation_steps=3)
    optimizer.build([variable])
    for step in range(1, 7):
        optimizer.apply([tf.constant([1.0])], [variable])
        assert int(keras_private.step_counter(optimizer)) == step
        assert int(optimizer.iterations) == step // 3
    scaled = keras.optimizers.LossScaleOptimizer(optimizer)
    assert keras_private.step_counter(scaled) is keras_private.step_counter(optimizer)


def test_an_optimizer_may_be_given_gradients_alone() -> None:
    variables, optimizer = [keras.Variable([4.0]), keras.Variable([2.0, 1.0])], keras.optimizers.SGD(1.0)
    optimizer.build(variables)
    assert [v is w for v, w in zip(keras_private.variables_of(optimizer), variables, strict=True)] == [True, True]
    whole_batch.add_up_first(optimizer)
    optimizer.apply([tf.constant([1.0]), tf.constant([1.0, 1.0])])
    assert [v.numpy().tolist() for v in variables] == [[3.0], [1.0, 0.0]]


# Sums of gradients. -------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [keras.optimizers.SGD, keras.optimizers.Adam, Adam])
def test_an_optimizer_adds_up_gradients_by_the_method_that_is_replaced(make: Any) -> None:
    asked: list[int] = []

    def counted(own: AddUp) -> AddUp:
        def add_up(pairs: Any) -> Any:
            pairs = list(pairs)
            asked.append(len(pairs))
            return own((gradient * 2.0, variable) for gradient, variable in pairs)

        return add_up

    variable, optimizer = keras.Variable([4.0]), make(0.5)
    keras_patches.replace_gradient_sum(optimizer, counted)
    optimizer.apply([tf.constant([1.0])], [variable])
    assert asked == [1]
    if make is keras.optimizers.SGD:
        assert variable.numpy().tolist() == [3.0], "what the replacement gives is what is applied"


# Nowhere else. ------------------------------------------------------------------------------------

ALLOWED = {"_replace", "_exit"}
"""Public, though they begin with an underscore: of named tuples, and of os."""


def touches(source: str) -> set[str]:
    """Names that a module has no business with: private modules, and private attributes of what is not its own."""
    found = set(re.findall(r"keras\.src\.\w+|__internal__|from tensorflow\.python|CDLL\(str", source))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr):
            owner = node.value.id if isinstance(node.value, ast.Name) else ""
            if owner not in ("self", "cls"):
                found.add(node.attr)
    return found


PRIVATE = ("keras_patches.py", "keras_private.py", "one_of_many.py", "tensorflow_patches.py", "tensorflow_private.py")
FLOORS = ("training", "workloads", "model_dir")
MODULES = [p for floor in FLOORS for p in sorted((Path(trainer.__file__).parent / floor).rglob("*.py"))]


def test_private_parts_are_touched_in_five_files() -> None:
    found = {path: touches(path.read_text(encoding="utf-8")) - ALLOWED for path in MODULES}
    assert {path: parts for path, parts in found.items() if parts and path.name not in PRIVATE} == {}
    assert {path.name for path, parts in found.items() if parts} == {*PRIVATE}


def test_an_access_in_another_file_is_found() -> None:
    source = "import keras\nkeras.src.backend\nmodel._layers\nself._mine"
    assert touches(source) == {"keras.src.backend", "_layers"}
