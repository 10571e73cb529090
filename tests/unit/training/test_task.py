import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.jobs import DIGITS, setup, with_data, with_workload
from trainer.job.cluster import tasks_of
from trainer.job.errors import UserError
from trainer.training import inputs
from trainer.training.task import TrainingTask
from trainer.workloads import workload
from trainer.workloads.estimator import Context, EvalSpec, Hook, TrainSpec

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def test_a_checkpoint_fits_the_code_that_was_loaded_whatever_the_file_holds_now(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("from trainer.workloads.digits import DATASET, model\n")
    own = setup(workload=str(path))
    before = hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_text("# edited\n")
    assert own.compatibility_key["workload_sha256"] == before
    assert setup().compatibility_key["workload_sha256"] is None


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
def test_accuracy_is_reported_only_where_it_is_meaningful(parts: dict[str, Any], names: list[str]) -> None:
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
    assert digits.total_steps(digits.split(workload.Shard("train"))) == steps


def test_a_split_comes_from_the_dataset_or_from_the_data_function() -> None:
    shard = workload.Shard("test", 1, 3, 7)
    assert setup().split(shard).count() == len(DIGITS["x_test"])
    asked: list[workload.Shard] = []

    def data(shard: workload.Shard) -> Any:
        asked.append(shard)
        return np.zeros((5, 2)), np.zeros(5)

    source: inputs.Source = with_workload(data=data).split(shard)
    assert (source.count(), asked) == (5, [shard])


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
    hooked.after_run(20, hooked.figures(tf.constant([0.5, 0.25])))
    hooked.end(30)
    figures = {"loss": 0.5, "accuracy": 0.25}
    one = [("a", "begin"), ("a", 20, figures), ("a", "end", 30)]
    assert calls == [call for each in one for call in (each, ("b", *each[1:]))]
    assert type(calls[2][2]["loss"]) is float


def test_a_hook_needs_none_of_its_methods_and_a_job_needs_no_hook() -> None:
    for plain in (with_workload(train_spec=TrainSpec(lambda context: None, hooks=[Hook()])), setup()):
        plain.begin()
        plain.after_run(10, plain.figures(np.array([0.5, 0.25])))
        plain.end(10)


@pytest.mark.parametrize(
    ("max_steps", "train", "steps"), [(5, {}, 5), (5, {"steps": 7}, 7), (9, {"steps": 7}, 7), (None, {}, 1000)]
)
def test_the_steps_of_the_spec_win_over_those_of_the_train_spec(
    max_steps: int | None, train: dict[str, Any], steps: int
) -> None:
    job = setup(train=train)
    job = replace(job, workload=replace(job.workload, train_spec=TrainSpec(lambda context: None, max_steps)))
    assert job.total_steps(job.training) == steps


NUMBERS = tf.data.Dataset.from_tensor_slices((np.arange(12.0), -np.arange(12.0)))


def test_an_input_fn_gets_its_context_and_skips_earlier_batches() -> None:
    asked: list[Context] = []

    def input_fn(context: Context) -> Any:
        asked.append(context)
        return NUMBERS.batch(context.batch_size)

    job = setup({"worker": {"replicas": 3, "cpu_devices": 2}}, train={"batch_size": 2})
    job = replace(job, workload=replace(job.workload, train_spec=TrainSpec(input_fn)))
    assert job.training.count() is None
    batches = job.training.batches(inputs.Part(2, shards=3, index=1, local=2, start=2))
    assert asked == [Context(num_input_pipelines=3, input_pipeline_id=1, num_replicas_in_sync=6, batch_size=2)]
    got = [x.tolist() for x, _ in batches.take(3).as_numpy_iterator()]
    assert got == [[8.0, 9.0], [10.0, 11.0], [0.0, 1.0]], "two batches for each of two steps came before"


def data(shard: workload.Shard) -> Any:
    numbers = np.arange(20) if shard.split == "train" else np.arange(100, 107)
    return numbers, -numbers


def read(batches: Any) -> list[int]:
    return [int(x) for part, _ in batches.as_numpy_iterator() for x in part]


@pytest.mark.parametrize(("share", "last"), [(0.1, 2), (0.33, 7), (0.5, 10), (0.96, 20)])
def test_a_share_to_validate_with_is_that_of_keras_and_never_trained_on(share: float, last: int) -> None:
    job = with_data(setup(train={"validation_split": share, "batch_size": 1, "epochs": 3}), data)
    if last == 20:
        with pytest.raises(UserError, match=r"^train\.validation_split: 0\.96 of 20 examples leaves 0 to train on"):
            job.validation()
        return
    seen: list[int] = []

    class Model(keras.Model):  # type: ignore[misc]
        def test_step(self, batch: Any) -> Any:
            seen.extend(np.asarray(batch[0]).tolist())
            return {"loss": tf.zeros([])}

        def train_step(self, batch: Any) -> Any:
            return {"loss": tf.zeros([])}

    model = Model()
    model.compile(run_eagerly=True)
    model.fit(*data(workload.Shard("train")), validation_split=share, verbose=0)
    assert read(job.validation()) == seen == list(range(20 - last, 20))
    steps = job.total_steps(job.training)
    assert steps == 3 * (20 - last)
    assert sorted(read(job.training.batches(job.part).take(steps))) == sorted([*range(20 - last)] * 3)
    assert read(job.evaluation()) == list(range(100, 107))


def test_validation_data_are_what_the_workload_gives_for_them() -> None:
    asked: list[workload.Shard] = []

    def validation(shard: workload.Shard) -> Any:
        asked.append(shard)
        return NUMBERS

    job = with_data(setup(train={"seed": 3}), data)
    assert job.validation() is None
    own = replace(job, workload=replace(job.workload, validation=validation))
    assert read(own.validation()) == list(range(12))
    assert asked == [workload.Shard("validation", 0, 1, 3)]
    endless = replace(job, workload=replace(job.workload, validation=lambda shard: NUMBERS.repeat()))
    with pytest.raises(UserError, match=r"^workload: validation\(\): the Dataset never ends; leave repeat\(\) out"):
        endless.validation()
    nothing = replace(job, workload=replace(job.workload, validation=lambda shard: None))
    with pytest.raises(UserError, match=r"^workload: validation\(\): gave None; return x, \(x, y\) or"):
        nothing.validation()


def test_validation_data_of_a_file_of_arrays() -> None:
    digits = setup()
    assert digits.validation() is None
    more = {f"{part}_validation": DIGITS[f"{part}_test"][:9] for part in "xy"}
    ((x, y),) = list(replace(digits, arrays={**DIGITS, **more}).validation() or [])
    np.testing.assert_array_equal(x, DIGITS["x_test"][:9])
    np.testing.assert_array_equal(y, DIGITS["y_test"][:9])


def test_data_to_evaluate_on_are_not_tuned_wherever_they_come_from() -> None:
    job = with_data(setup(train={"validation_split": 0.25}), data)
    own = replace(setup(), workload=replace(job.workload, validation=lambda shard: NUMBERS))
    estimator = replace(job, workload=replace(job.workload, eval_spec=EvalSpec(lambda context: NUMBERS.batch(2))))
    found = [job.evaluation(), job.validation(), own.validation(), estimator.evaluation()]
    assert [each.options().autotune.enabled for each in found if each is not None] == [False] * 4


def test_only_arrays_are_divided_and_only_if_there_is_no_other_validation_data() -> None:
    job = with_data(setup(train={"validation_split": 0.25}), data)
    for wrong, rule in [
        (replace(job.workload, data=lambda shard: NUMBERS), r"0\.25: data\(\) gives no arrays, which alone can be div"),
        (replace(job.workload, validation=data), r"0\.25: there is validation data of its own; remove one of both"),
    ]:
        with pytest.raises(UserError, match=rf"^train\.validation_split: {rule}"):
            _ = replace(job, workload=wrong).training


def test_epochs_of_a_dataset_of_known_size_are_the_same_on_all_tasks() -> None:
    def of(dataset: Any) -> TrainingTask:
        job = setup({"worker": 3}, train={"epochs": 4, "batch_size": 2})
        return with_data(job, lambda shard: dataset.shard(shard.count, shard.index))

    for position in range(3):
        job = of(NUMBERS.take(11))  # 4, 4 and 3 examples
        job = replace(job, task=tasks_of(job.spec)[position])
        assert job.total_steps(job.training) == 4
    unknown = of(NUMBERS.filter(lambda x, y: x < 9))
    with pytest.raises(UserError, match=r"^train\.epochs, callbacks\(\): data\(\) gives a Dataset, whose size is not"):
        unknown.total_steps(unknown.training)
    known = of(NUMBERS.filter(lambda x, y: x < 9).apply(tf.data.experimental.assert_cardinality(12)))
    assert known.total_steps(known.training) == 8
    endless = of(NUMBERS.repeat())
    with pytest.raises(UserError, match=r"^train\.epochs, callbacks\(\): data\(\) gives a Dataset that never ends"):
        endless.total_steps(endless.training)
