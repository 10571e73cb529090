"""Checkpoints are the state at their step, although training continues while they are written."""

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training import jobs
from tests.unit.training.callbacks.loop import RecordingChannel
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.model_dir import arrays, checkpoint
from trainer.training.model.state import TrainState, build_state
from trainer.training.outputs.saver import Saver
from trainer.training.task import TrainingTask

ROWS = 50


class Counting(keras.layers.Layer):  # type: ignore[misc]
    """Has a variable of its own, which each step changes."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.counted = self.add_weight(shape=(5,), dtype=kind, initializer="zeros", trainable=False, name="counted")

    def call(self, x: Any) -> Any:
        self.counted.assign(self.counted.value + tf.ones([5], self.counted.dtype))
        return x


def embedding(kind: str = "float32") -> keras.Model:
    return keras.Sequential(
        [keras.Input((4,), dtype="int32"), keras.layers.Embedding(ROWS, 3), keras.layers.Flatten(), Counting(kind),
         keras.layers.Dense(2)]
    )  # fmt: skip


def job_in(folder: Path, model: Callable[[], keras.Model] = embedding, **train: Any) -> TrainingTask:
    job = jobs.setup(model_dir=str(folder), train=train)
    return replace(job, workload=replace(job.workload, model=model))


def steps_of(state: TrainState) -> Callable[[int], None]:
    """Makes steps: an embedding's gradients are sparse, those of the other layers are not."""

    @tf.function(autograph=False)
    def step(x: Any) -> None:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.cast(state.model(x), tf.float32) ** 2)
        variables = state.model.trainable_variables
        gradients = tape.gradient(loss, [v.value for v in variables])
        assert isinstance(gradients[0], tf.IndexedSlices)
        state.optimizer.apply(gradients, variables)

    def steps(count: int) -> None:
        for i in range(count):
            step(tf.constant([[i % ROWS, 1, 1, 7]]))

    return steps


class Gate:
    """Keeps the thread from writing until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, own = threading.Event(), arrays.write

        def write(file: BinaryIO, values: Any) -> str:
            assert self.opened.wait(60)
            return own(file, values)

        monkeypatch.setattr(arrays, "write", write)


def made(job: TrainingTask) -> tuple[TrainState, Saver]:
    state = build_state(job)
    return state, Saver(job, state, RecordingChannel())


@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd", "rmsprop", "adagrad"])
def test_a_checkpoint_has_each_bit_of_its_step_though_training_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimizer: str, kind: str
) -> None:
    gate = Gate(monkeypatch)
    job = job_in(tmp_path, lambda: embedding(kind), optimizer=optimizer)
    state, saver = made(job)
    steps = steps_of(state)
    steps(3)
    expected = {name: value.tobytes() for name, value in state.values().items()}
    saver.save(3)
    steps(4)
    gate.opened.set()
    saver.wait()
    loaded = checkpoint.load(checkpoint.folder(tmp_path) / checkpoint.name(3))
    assert loaded is not None
    assert {name: value.tobytes() for name, value in loaded[1].items()} == expected
    changed = {name for name, value in state.values().items() if value.tobytes() != expected[name]}
    assert {"model.000", "model.001", "model.002", "model.003"} <= changed, "training went on"
    assert list(loaded[1]) == [name for name, _ in state.variables]


def test_a_snapshot_of_variables_on_a_cpu_copies_nothing() -> None:
    state = build_state(jobs.setup())
    one, other = state.values(), state.values()
    assert all(np.shares_memory(one[name], other[name]) for name in one if one[name].size)
    assert not any(value.flags.writeable for value in one.values())


@pytest.mark.parametrize(("kind", "bad"), [("float32", np.nan), ("float16", np.inf), ("bfloat16", -np.inf)])
def test_a_variable_that_is_not_finite_ends_the_job_and_never_becomes_a_checkpoint(
    tmp_path: Path, kind: str, bad: float
) -> None:
    state, saver = made(job_in(tmp_path, lambda: embedding(kind)))
    saver.save(10)
    (counted,) = (v for v in state.model.variables if v.name == "counted")
    counted.assign([0, 1, bad, 2, 3])
    saver.save(20)
    with pytest.raises(TrainerError, match=r"variable \S*counted is not finite at step 20; lower") as caught:
        saver.wait()
    assert caught.value.code == Exit.DIVERGED
    assert [path.name for path in checkpoint.folder(tmp_path).iterdir()] == ["step-00000010"]


class Masked(keras.layers.Layer):  # type: ignore[misc]
    """Keeps a mask as a weight that is not trained."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = self.add_weight(shape=(2,), trainable=False, name="mask", initializer=lambda *_, **__: [-np.inf, 0])

    def call(self, x: Any) -> Any:
        return x


def test_a_constant_that_was_never_finite_is_in_checkpoints(tmp_path: Path) -> None:
    job = job_in(tmp_path, lambda: keras.Sequential([embedding(), Masked()]))
    state, saver = made(job)
    saver.save(10)
    saver.wait()
    loaded = checkpoint.load(checkpoint.folder(tmp_path) / checkpoint.name(10))
    assert loaded is not None
    (name,) = (name for name, v in state.variables if v.path.endswith("mask"))
    assert loaded[1][name].tolist() == [-np.inf, 0.0]
    trained = state.model.trainable_variables[0]
    trained.assign(np.full(trained.shape, np.inf))
    saver = Saver(job, state, RecordingChannel())
    saver.save(20)
    with pytest.raises(TrainerError, match="embeddings is not finite at step 20"):
        saver.wait()


def test_a_variable_that_is_not_finite_ends_the_job_with_the_row_of_the_data(tmp_path: Path) -> None:
    values = np.ones((9, 4), "float32")
    values[7, 1] = np.nan
    job = job_in(tmp_path, lambda: keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)]))
    workload = replace(job.workload, data=lambda shard: (values, np.zeros(9)))
    state, saver = made(replace(job, workload=workload, arrays=None))
    state.model.trainable_variables[0].assign(np.full((4, 2), np.nan))
    saver.save(10)
    with pytest.raises(TrainerError, match=r"kernel is not finite at step 10; row 7 of x in the data is not finite"):
        saver.wait()


def test_training_learns_of_a_failure_as_soon_as_the_thread_has_failed(tmp_path: Path) -> None:
    _state, saver = made(job_in(tmp_path))
    (tmp_path / "checkpoints").write_text("a file where a folder should be")
    saver.raise_failure()
    saver.save(10)
    assert saver._pending is not None
    saver._pending.exception(60)
    with pytest.raises(UserError, match=r"the checkpoint of step 10 \(0\.0 MB\) cannot be written: Not a directory"):
        saver.raise_failure()
