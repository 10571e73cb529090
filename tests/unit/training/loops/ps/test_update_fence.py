"""A ps-worker's step is applied whole, or not at all."""

from types import SimpleNamespace
from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from trainer.training.loops.ps.update_fence import SMALL, Fence, _sent
from trainer.training.private.adam import Adam

OPTIMIZERS: dict[str, Any] = {
    "adam": lambda: Adam(0.1),
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9),
    "float16": lambda: keras.optimizers.LossScaleOptimizer(Adam(0.1)),
}


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_gradients_of_a_void_ticket_change_nothing(name: str) -> None:
    weights, rows, unused = keras.Variable([1.0, 2.0]), keras.Variable(np.ones((3, 2), np.float32)), keras.Variable(1.0)
    optimizer = OPTIMIZERS[name]()
    optimizer.build([weights, rows, unused])
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    ticket, round_, begun, ended = (tf.Variable(0) for _ in range(4))
    Fence([optimizer], begun, ended).holds = lambda: tf.equal(ticket, round_)

    @tf.function(autograph=False)
    def step() -> None:
        with tf.GradientTape() as tape:
            # One gradient is dense, the other is of some rows.
            loss = tf.reduce_sum(weights.value**2) + tf.reduce_sum(tf.gather(rows.value, [0, 2]))
        variables = [weights, rows, unused]
        optimizer.apply(tape.gradient(loss, [v.value for v in variables]), variables)

    def state() -> list[Any]:
        return [v.numpy() for v in (weights, rows, *inner.variables)]

    step()
    assert int(optimizer.iterations) == 1
    assert not np.allclose(weights.numpy(), [1, 2])
    before = state()
    round_.assign_add(1)
    step()
    for was, now in zip(before, state(), strict=True):
        np.testing.assert_array_equal(was, now)
    ticket.assign_add(1)
    step()
    assert int(optimizer.iterations) == 2
    assert (int(begun), int(ended)) == (3, 3)


@pytest.mark.parametrize("name", ["sgd", "float16"])
def test_gradients_are_ready_before_they_are_sent_to_the_ps(name: str) -> None:
    """With float16 the update is within a condition, so that its time is not known."""
    weights = keras.Variable([1.0, 2.0])
    optimizer = OPTIMIZERS[name]()
    optimizer.build([weights])
    fence = Fence([optimizer], tf.Variable(0), tf.Variable(0))

    @tf.function(autograph=False)
    def step() -> Any:
        # Not of a constant: Keras evaluates the condition while it traces, if TensorFlow can.
        optimizer.apply([tf.square(weights.value, name="gradient")], [weights])
        return fence.take_ready()

    graph = step.get_concrete_function().graph
    (clocks,) = ([op for op in graph.get_operations() if op.type == "Timestamp"],)
    assert np.isnan(float(step())) == (name == "float16")
    assert [[op.name for op in clock.control_inputs] for clock in clocks] == ([["gradient"]] if name == "sgd" else [])


def test_of_two_optimizers_each_update_needs_the_ticket() -> None:
    weights = [keras.Variable([1.0]), keras.Variable([2.0])]
    first, second = optimizers = [keras.optimizers.SGD(0.5), Adam(0.1)]
    for optimizer, weight in zip(optimizers, weights, strict=True):
        optimizer.build([weight])
    valid, begun, ended = tf.Variable(2), tf.Variable(0), tf.Variable(0)
    Fence(optimizers, begun, ended).holds = lambda: tf.greater_equal(valid.assign_sub(1), 0)

    @tf.function(autograph=False)
    def step() -> None:
        first.apply([tf.constant([1.0])], [weights[0]])
        second.apply_gradients([(weights[0] * 2.0, weights[1])])

    step()
    assert weights[0].numpy().tolist() == [0.5]
    assert weights[1].numpy().tolist() == pytest.approx([1.9])
    valid.assign(1)
    step()
    assert weights[0].numpy().tolist() == [0.0]
    assert [int(optimizer.iterations) for optimizer in optimizers] == [2, 1], "the ticket was lost in between"
    assert (int(begun), int(ended)) == (4, 4)


def test_an_update_is_under_way_until_all_its_variables_have_it() -> None:
    seen = []

    class Slow(keras.optimizers.SGD):  # type: ignore[misc]  # keras has no types
        def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
            looked = tf.py_function(lambda: seen.append((int(begun), int(ended))), [], [])
            with tf.control_dependencies([looked]):
                super().update_step(gradient, variable, learning_rate)

    weights = [keras.Variable([1.0, 2.0]), keras.Variable([3.0])]
    optimizer = Slow(0.1)
    optimizer.build(weights)
    begun, ended = tf.Variable(0), tf.Variable(0)
    Fence([optimizer], begun, ended).holds = lambda: tf.py_function(lambda: begun > ended, [], tf.bool)

    @tf.function(autograph=False)
    def step() -> None:
        with tf.GradientTape() as tape:
            loss = tf.add_n([tf.reduce_sum(each.value**2) for each in weights])
        optimizer.apply(tape.gradient(loss, [each.value for each in weights]), weights)

    step()
    step()
    assert seen == [(1, 0), (1, 0), (2, 1), (2, 1)]
    assert (int(begun), int(ended)) == (2, 2)


def test_an_update_begins_once_what_its_check_takes_has_arrived() -> None:
    """Otherwise a worker that dies in between would leave an update that never ends."""
    weights, seen = keras.Variable([1.0, 2.0]), []
    optimizer = keras.optimizers.SGD(0.1)
    optimizer.build([weights])
    begun, ended = tf.Variable(0), tf.Variable(0)
    fence = Fence([optimizer], begun, ended)
    fence.holds = lambda sent: tf.equal(sent, 7)

    @tf.function(autograph=False)
    def step() -> None:
        late = tf.py_function(lambda: seen.append(int(begun)) or 7, [], tf.int32)  # type: ignore[func-returns-value]
        fence.sent = [late]
        optimizer.apply([tf.constant([1.0, 1.0])], [weights])

    for count in (1, 2):
        step()
        assert (int(begun), int(ended)) == (count, count)
    assert seen == [0, 1]
    np.testing.assert_allclose(weights.numpy(), [0.8, 1.8], rtol=1e-6)


def test_no_operation_of_an_update_is_left_to_the_worker() -> None:
    """Once the gradients have arrived: a worker that is killed or stands still then would leave half of an update."""
    weights = keras.Variable([1.0, 2.0])
    optimizer = Adam(0.1)
    optimizer.build([weights])
    ticket, round_ = tf.Variable(0), tf.Variable(0)
    Fence([optimizer], tf.Variable(0), tf.Variable(0)).holds = lambda: tf.equal(ticket, round_, name="holds")

    @tf.function(autograph=False)
    def step() -> None:
        with tf.device("/job:worker/task:0"):
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(weights.value**2)
            optimizer.apply(tape.gradient(loss, [weights.value]), [weights])

    graph = step.get_concrete_function().graph
    (decision,) = (op for op in graph.get_operations() if op.type in ("If", "StatelessIf"))
    branch = decision.get_attr("then_branch").name
    (body,) = (f for f in graph.as_graph_def().library.function if f.signature.name == branch)
    devices = {op.name: op.device for op in (decision, graph.get_operation_by_name("holds"))}
    devices |= {node.name: node.device for node in body.node_def}
    assert "ResourceApplyAdam" in {node.op for node in body.node_def}
    assert {name: device for name, device in devices.items() if "worker" in device} == {}


PS = "/job:ps/replica:0/task:{}/device:CPU:0"


def on(device: str) -> Any:
    return SimpleNamespace(value=SimpleNamespace(device=device))


@pytest.mark.parametrize("as_bfloat16", [False, True])
def test_small_gradients_of_a_ps_come_in_one_message_each_for_its_variable(as_bfloat16: bool) -> None:
    random = np.random.default_rng(5)

    def dense(shape: list[int], dtype: Any = np.float32) -> Any:
        return tf.constant(random.normal(size=shape).astype(dtype))

    large = [SMALL // 4 + 1]
    kinds = [
        (dense([3, 5]), 0), (dense([]), 1), (None, 0), (dense(large), 0), (dense([0, 2]), 0), (dense([7]), 0),
        (tf.IndexedSlices(dense([2, 4]), tf.constant([0, 2])), 0), (dense([4], np.float64), 0), (dense([6]), 1),
    ]  # fmt: skip
    gradients, variables = [gradient for gradient, _ in kinds], [on(PS.format(task)) for _, task in kinds]

    @tf.function(autograph=False)
    def send(*given: Any) -> list[Any]:
        return [each for each in _sent(given, variables, as_bfloat16=as_bfloat16) if each is not None]

    graph = send.get_concrete_function(*gradients).graph
    entered = {
        (op.device, tensor.name, tensor.dtype.name)
        for op in graph.get_operations() if "ps" in op.device
        for tensor in op.inputs if tensor.op.type != "Const" and "ps" not in tensor.op.device
    }  # fmt: skip
    messages = {task: sorted(dtype for device, _, dtype in entered if device == PS.format(task)) for task in (0, 1)}
    # Of ps 0: three small ones together, one of another type, the large one, and rows with their places.
    sent = "bfloat16" if as_bfloat16 else "float32"
    assert messages == {0: sorted([sent, "float64", sent, "float32", "int32"]), 1: [sent]}


@pytest.mark.parametrize("as_bfloat16", [False, True])
def test_sent_gradients_are_the_same(as_bfloat16: bool) -> None:
    random = np.random.default_rng(6)
    shapes = [[3, 5], [], [SMALL], [0, 2], [7]]
    gradients = [tf.constant(random.normal(size=shape).astype(np.float32)) for shape in shapes]
    variables = [on("CPU:0")] * len(shapes)
    for own, sent in zip(gradients, _sent(gradients, variables, as_bfloat16=as_bfloat16), strict=True):
        assert (sent.shape, sent.dtype) == (own.shape, own.dtype)
        wanted = own.numpy().astype(ml_dtypes.bfloat16).astype(np.float32) if as_bfloat16 else own
        np.testing.assert_array_equal(sent, wanted)
