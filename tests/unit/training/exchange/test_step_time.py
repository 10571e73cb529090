"""What the graph of a step measures."""

import json
import math
import subprocess
import sys
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.framework import config

from trainer.training.exchange import step_time

pytestmark = pytest.mark.part("training")


def noted(order: list[str], what: str, given: Any) -> Any:
    def note(value: Any) -> Any:
        order.append(what)
        return value

    return tf.numpy_function(note, [given], tf.float32)


def reduced(value: Any, token: tf.Variable, key: int) -> Any:
    """A sum over the replicas, of which this one is the only one."""
    hints = {"merge_op": "Add", "final_op": "Id", "communication_hint": "auto", "timeout_seconds": 0.0}
    return tf.raw_ops.CollectiveReduceV2(
        input=value, group_size=1, group_key=1, instance_key=key, ordering_token=[token.handle], **hints
    )


def test_a_step_is_over_once_its_updates_are_though_it_returns_before() -> None:
    updated = tf.Variable(0.0)
    after: list[str] = []

    @tf.function(autograph=False)
    def step() -> None:
        updated.assign_add(1.0)
        with step_time.added() as made:
            updated.assign(2.0)
            tf.cond(updated > 0.0, lambda: updated.assign_sub(1.0, read_value=True), lambda: tf.constant(0.0))
        after[:] = [op.type for op in made.completed().op.control_inputs]

    step()
    assert {"AssignVariableOp", "If"} <= set(after)
    assert "AssignAddVariableOp" not in after, "it came before"


def test_a_batch_has_arrived_once_all_its_parts_have() -> None:
    order: list[str] = []

    @tf.function(autograph=False)
    def step() -> Any:
        first = noted(order, "x", tf.constant(1.0))
        with tf.control_dependencies([first]):
            second = noted(order, "y", tf.constant(2.0))
        ragged = tf.RaggedTensor.from_row_lengths(tf.zeros([2]), [1, 1])
        with tf.control_dependencies([step_time.arrived(({"a": first}, ragged, second))]):
            return noted(order, "there", tf.constant(0.0))

    step()
    assert order == ["x", "y", "there"]


def test_no_operation_waits_for_a_clock_and_a_clock_only_for_its_own() -> None:
    @tf.function(autograph=False)
    def step() -> Any:
        before = noted([], "before", tf.constant(1.0))
        clock = step_time.after([tf.constant(2.0)])
        return before, clock, noted([], "after", tf.constant(3.0))

    operations = step.get_concrete_function().graph.get_operations()
    (clock,) = (op for op in operations if op.type == "Timestamp")
    assert {op.type for op in clock.control_inputs} == {"NoOp"}
    # The function ends with a NoOp that waits for all.
    assert [op.type for op in operations if clock in op.control_inputs] == ["NoOp"]


def test_an_exchange_lasts_from_the_last_of_its_values_to_the_last_sum() -> None:
    """It does not include what is computed before it, nor after."""
    token, weight = tf.Variable(0.0), tf.Variable(0.0)

    @tf.function(autograph=False)
    def step() -> Any:
        with step_time.added() as made:
            values = [tf.reduce_sum(tf.random.stateless_normal([500], [i, 0])) for i in range(2)]
            sums = [reduced(value, token, key) for key, value in enumerate(values, 1)]
            weight.assign(sums[0] * sums[1])
        seconds = made.exchanged()
        return seconds, made.completed()

    graph = step.get_concrete_function().graph

    def behind(op: Any) -> set[str]:
        """All that a clock waits for directly."""
        groups = [each for each in op.control_inputs if each.type == "NoOp"]
        return {each.type for group in groups for each in group.control_inputs}

    clocks = [op for op in graph.get_operations() if op.type == "Timestamp"]
    assert [behind(clock) & {"Sum", "CollectiveReduceV2"} for clock in clocks] == [
        {"Sum"},
        {"CollectiveReduceV2"},
        set(),
    ]
    assert 0 <= float(step()[0]) < 60


def test_without_an_exchange_its_time_is_unknown() -> None:
    @tf.function(autograph=False)
    def step(x: Any) -> Any:
        with step_time.added() as made:
            tf.square(x)
        return made.exchanged()

    assert math.isnan(float(step(tf.constant(2.0))))


def test_where_operations_are_deterministic_nothing_is_measured() -> None:
    tf.config.experimental.enable_op_determinism()
    try:
        seconds = tf.function(lambda: step_time.measured(tf.stack([step_time.now() - step_time.now(), 0.0])))()
    finally:
        config.disable_op_determinism()
    assert all(map(math.isnan, seconds.numpy().tolist()))
    assert step_time.measured(tf.constant([1.0])).numpy().tolist() == [1.0]


# Each: kinds of the collectives by group, the first of which have no results of others.
GROUPS = {
    "clipnorm": [["CollectiveReduceV2"]],
    "accumulation": [["CollectiveReduceV2"]],
    "float16": [["CollectiveReduceV2"]],
    "adversarial": [["CollectiveReduceV2"], ["CollectiveReduceV2"]],
    "embeddings": [["CollectiveGatherV2", "CollectiveReduceV2"], ["If"]],
    "synchronized BatchNormalization": [["CollectiveReduceV2"]] * 3,
}


@pytest.fixture(scope="module")
def found() -> dict[str, list[list[str]]]:
    command = [sys.executable, "-m", "tests.unit.training.exchanges", *GROUPS]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr
    return {name: groups for line in ended.stdout.splitlines() for name, groups in json.loads(line).items()}


@pytest.mark.parametrize("name", GROUPS)
def test_collectives_that_need_results_of_others_are_a_group_of_their_own(
    name: str, found: dict[str, list[list[str]]]
) -> None:
    assert found[name] == GROUPS[name]
