"""Two tasks that differ say so, and where."""

import pytest

from tests.unit.training import two_tasks
from trainer.job.load import build

PROGRAM = """
from dataclasses import replace
import keras
import numpy as np
from trainer.job.errors import UserError
from trainer.training.model.state import build_state, prepare
from trainer.training.task import load_task
from trainer.training.weights import agreement, equality, untracked

other = task.index == 1
digits = load_task(spec, task, lambda event: print(event, flush=True))

def network(*names, units=8, frozen=False, prefix=""):
    x = keras.Input((4,))
    parts = [keras.layers.Dense(units, name=prefix + name)(x) for name in names]
    model = keras.Model(x, keras.layers.Dense(3, name=prefix + "last")(keras.layers.Add()(parts)))
    model.get_layer(prefix + names[0]).trainable = not frozen
    return model

def data(count=400, dtype="float32", seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 4)).astype(dtype), rng.integers(0, 3, count)

def with_model(make):
    job = replace(digits, workload=replace(digits.workload, model=make, data=lambda shard: data()), arrays=None)
    with strategy.scope():
        return job, build_state(job)

def show(case, call):
    agreement._VARIABLES += 10  # a generation has one of each, and each use has its own shapes
    agreement._DATA += 10
    try:
        call()
        print(case, "agree", flush=True)
    except UserError as error:
        print(case, error, flush=True)

def compare_models(case, make):
    job, state = with_model(make)
    show(case, lambda: agreement.require_same_variables(job, state))

compare_models("same", lambda: network("a", "b"))
compare_models("names", lambda: network("a", "b", prefix=f"task{task.index}_"))
compare_models("order", lambda: network(*(["c", "b"] if other else ["b", "c"])))
compare_models("shape", lambda: network("a", "b", units=9 if other else 8))
compare_models("more", lambda: network("a", *["b"] * other))
compare_models("frozen", lambda: network("a", "b", frozen=other))

def compare_data(case, *given, total=100, **named):
    job = replace(digits, workload=replace(digits.workload, data=lambda shard: data(*given, **named)), arrays=None)
    show(case, lambda: agreement.require_same_data(job, job.training, total))

compare_data("equal")
compare_data("count", 320 if other else 400)
compare_data("dtype", dtype="float64" if other else "float32")
compare_data("total", total=100 + other)
compare_data("contents", seed=task.index)

def compare_values(case, values):
    job = replace(digits, workload=replace(digits.workload, data=lambda shard: (values, np.zeros(200))), arrays=None)
    show(case, lambda: agreement.require_same_data(job, job.training, 100))

compare_values("text", np.array([f"{i} words" for i in range(200)]))
compare_values("ragged", tf.RaggedTensor.from_row_lengths(tf.range(20), [1] * 20 + [0] * 180))

job, state = with_model(lambda: network("a", "b"))
require_equal = equality.make_require_equal(strategy, job, state)
kernel = state.model.get_layer("b").kernel

def after(case, change):
    kernel.value.values[0].assign_add(change)
    show(case, lambda: require_equal(7))

after("untouched", tf.zeros_like(kernel))
after("rounded", kernel.value.values[0] * (1e-7 * other))
after("apart", tf.one_hot([3] * 4, 8) * (0.02 * other))

with strategy.scope():
    at_the_top = tf.Variable(float(task.index + 1))
    job.created.add(at_the_top)
counter = tf.Variable(5 + task.index)
job.created.add(counter)
unknown = tf.Variable(0.0)

@tf.function(autograph=False)
def step(stranger):
    counter.assign_add(1, read_value=False)
    total = at_the_top + 1.0 + (unknown if stranger else 0.0)
    show("adopted", lambda: untracked.adopt(job, state, tf.compat.v1.get_default_graph()))
    return total

how = {"synchronization": tf.VariableSynchronization.ON_READ, "aggregation": tf.VariableAggregation.SUM}
with strategy.scope():
    summed = tf.Variable(0.0, **how)
job.created.add(summed)

@tf.function(autograph=False)
def reading():
    strategy.run(lambda: summed.assign_add(1.0))
    show("on read", lambda: untracked.adopt(job, state, tf.compat.v1.get_default_graph()))

reading()
step(False)
print("values", {name: float(tf.convert_to_tensor(v)) for name, v in state.untracked.items()}, flush=True)
step(True)
"""


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[list[str]]:
    spec = build(
        {"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, "workload": "digits"}
        | {"model_dir": str(tmp_path_factory.mktemp("run"))}
    )
    return [output.splitlines() for output in two_tasks.outputs(spec, PROGRAM)]


def of(lines: list[str], case: str) -> str:
    return "".join(line.removeprefix(f"{case} ") for line in lines if line.startswith(f"{case} "))


@pytest.mark.parametrize(
    ("case", "difference"),
    [
        ("same", "agree"),
        ("names", "agree"),
        (
            "order",
            "has the trained variable c/kernel float32[4,8] where the chief has the trained variable b/kernel",
        ),
        (
            "shape",
            "has the trained variable a/kernel float32[4,9] where the chief has the trained variable a/kernel",
        ),
        (
            "more",
            "has the trained variable b/kernel float32[4,8] where the chief has the trained variable last/kernel",
        ),
        (
            "frozen",
            "has the trained variable last/kernel float32[8,3] where the chief has the trained variable b/kernel",
        ),
        ("equal", "agree"),
        ("count", "worker:1 has 320 examples, and the chief 400 examples"),
        ("dtype", "worker:1 has batches of float64 (64, 4), int64 (64,), and the chief batches of float32 (64, 4)"),
        ("text", "agree"),
        ("ragged", "agree"),
        ("total", "worker:1 has 101 steps in all, and the chief 100 steps in all"),
    ],
)
def test_a_task_that_differs_from_the_chief_says_where(case: str, difference: str, lines: list[list[str]]) -> None:
    chief, other = (of(each, case) for each in lines)
    assert chief == "agree"
    assert difference in other


def test_other_contents_of_arrays_are_a_warning(lines: list[list[str]]) -> None:
    warnings = [[line for line in each if "another order" in line] for each in lines]
    assert [len(each) for each in warnings] == [0, 1]
    assert "worker:1: data('train') gives other examples" in warnings[1][0]
    for each in lines:
        assert "TensorFlow adds up over tasks whenever it is read (ON_READ)" in of(each, "on read")


def test_weights_that_are_not_equal_are_named_on_all_tasks_and_rounding_is_told_once(lines: list[list[str]]) -> None:
    for each in lines:
        assert of(each, "untouched") == "agree"
        assert of(each, "rounded") == "agree"
        assert "at step 7 b/kernel of worker:1 is another than the chief's" in of(each, "apart")
    assert [sum("no more than rounding" in line for line in each) for each in lines] == [1, 0]


def test_variables_that_nobody_has_are_those_of_the_chief_and_others_are_refused_by_name(
    lines: list[list[str]],
) -> None:
    for each in lines:
        adopted, refused = [line for line in each if line.startswith("adopted ")]
        assert adopted == "adopted agree"
        assert "a step uses the variable Variable:0, which was created neither in model()" in refused
        assert of(each, "values") == "{'untracked.file.000': 1.0, 'untracked.file.001': 6.0}"
