"""State that neither Keras nor an optimizer lists is trained state all the same. What two tasks do with it is in
test_agreement.py."""

import functools
import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.local.workloads import untracked as workload
from tests.unit.training.callbacks.loop import RecordingChannel
from tests.unit.training.jobs import setup
from trainer.job.cluster import tasks_of
from trainer.job.errors import UserError
from trainer.job.load import build
from trainer.model_dir import checkpoint
from trainer.training.loops import sync
from trainer.training.model import evaluation
from trainer.training.model.state import TrainState, build_state
from trainer.training.task import TrainingTask, load_task
from trainer.training.weights.untracked import candidates, used_by

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]
STEPS_OF_EPOCH = 15


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    gc.collect()  # the loop leaves it to the end of its process to close files


def train(folder: Path, steps: int, resume_step: int = 0) -> tuple[TrainingTask, TrainState, RecordingChannel]:
    """Trains to a step, in epochs of 15."""
    spec = build(
        {"name": "j", "strategy": "one_device", "workload": workload.__file__, "model_dir": str(folder)}
        | {"tasks": {"worker": 1}, "train": {"steps": steps, "batch_size": 16, "log_steps": 1}}
    )
    channel = RecordingChannel()
    job = load_task(spec, tasks_of(spec)[0], channel.send)
    state = build_state(job)
    sync._run(tf.distribute.get_strategy(), job, state, resume_step, channel)
    return job, state, channel


def saved(folder: Path, step: int) -> tuple[dict[str, str], dict[str, Any]]:
    """The paths and the values of the variables in a checkpoint."""
    loaded = checkpoint.load(checkpoint.folder(folder) / checkpoint.name(step))
    assert loaded is not None
    variables = loaded[0].meta["variables"]
    return {name: each["path"] for name, each in variables.items()}, {name: loaded[1][name] for name in variables}


def test_a_resumed_job_goes_on_with_it_and_callbacks_and_evaluation_have_it(tmp_path: Path) -> None:
    job, state, _ = train(tmp_path / "unbroken", 40)
    train(tmp_path / "resumed", 30)
    train(tmp_path / "resumed", 40, resume_step=30)
    paths, unbroken = saved(tmp_path / "unbroken", 40)
    assert saved(tmp_path / "resumed", 40)[0] == paths
    for name, value in saved(tmp_path / "resumed", 40)[1].items():
        np.testing.assert_array_equal(value, unbroken[name], err_msg=f"{name} {paths[name]}")

    untracked = {name: unbroken[name] for name in paths if name.startswith("untracked.")}
    weight, seen, draws, seed = untracked.values()
    assert weight == 0.25 * 3  # that of the third epoch, which a callback has set
    assert seen == 40
    assert draws[0] > 0  # the counter of a tf.random.Generator
    assert seed.shape == (2,)  # of Keras' own generator
    _, figures = evaluation.evaluate(job, state.values())
    assert figures["seen"] == 40


def test_copies_have_it_beside_layers_that_are_kept_and_others_are_refused(tmp_path: Path) -> None:
    @functools.cache
    def kept() -> Any:
        layer = keras.layers.Normalization()
        layer.adapt(np.arange(8.0).reshape(4, 2))
        return layer

    made = list[tf.Variable]()

    class Scaled(keras.Model):  # type: ignore[misc]
        def __init__(self, lazy: bool) -> None:
            super().__init__()
            if lazy and not made:
                made.append(tf.Variable(1.0))  # as by a module that the first call imports
            self.norm, self.dense, self.scale = kept(), keras.layers.Dense(1), tf.Variable(0.0, trainable=False)
            self.dense.build((None, 2))

        def call(self, x: Any) -> Any:
            return self.dense(self.norm(x)) * self.scale

    def job_of(lazy: bool) -> TrainingTask:
        job = setup(model_dir=str(tmp_path))
        data = np.zeros((200, 2), np.float32), np.zeros(200)
        workload = replace(job.workload, model=lambda: Scaled(lazy), data=lambda _: data)
        return replace(job, workload=workload, arrays=None)

    for lazy in (False, True):
        job = job_of(lazy)
        state = build_state(job)
        state.model.scale.assign(3.0)
        state.untracked = {name: v for name, v in candidates(job, state).items() if v is state.model.scale}
        assert len(state.untracked) == 1
        if lazy:
            with pytest.raises(UserError, match="creates other variables in each call"):
                evaluation.copy_of_model(job, state.values())
        else:
            assert float(evaluation.copy_of_model(job, state.values()).scale) == 3


@pytest.mark.parametrize("changes", [True, False])
def test_what_callbacks_change_in_the_data_is_state_and_what_data_changes_is_not(changes: bool, tmp_path: Path) -> None:
    class Harder(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: object = None) -> None:
            level.assign_add(1.0)

    def data(_: Any) -> Any:
        examples = tf.data.Dataset.from_tensor_slices((x, y)).map(lambda x, y: (x + noise.uniform([]), y))
        return examples.map(lambda x, y: (x * tf.cond(level > 1, lambda: level + 0, lambda: 1.0), y)).batch(9).unbatch()

    x, y = np.ones((200, 8, 8), np.float32), np.zeros(200, np.int64)
    for steps, expected in ((4, 2.0), (6, 3.0)):
        noise, level = tf.random.Generator.from_seed(3), tf.Variable(0.0, trainable=False)  # as at each start
        digits = setup(model_dir=str(tmp_path), train={"steps": steps, "steps_per_epoch": 2})
        workload = replace(digits.workload, data=data, callbacks=(lambda: [Harder()]) if changes else None)
        job = replace(digits, workload=workload, arrays=None)
        for variable in (noise.state, level):
            job.created.add(variable)
        step = steps - 2 if steps > 4 else 0
        sync._run(tf.distribute.get_strategy(), job, build_state(job), step, RecordingChannel())
        untracked = {name: v for name, v in saved(tmp_path, steps)[1].items() if name.startswith("untracked.")}
        assert untracked == ({"untracked.file.001": expected} if changes else {})


def test_what_model_keeps_for_its_next_call_is_refused_before_the_first_step(tmp_path: Path) -> None:
    kept = list[Any]()

    class Counting(keras.layers.Layer):  # type: ignore[misc]
        def call(self, x: Any) -> Any:
            if not kept:  # model() calls it: as tf.random.get_global_generator() makes its generator
                with tf.init_scope():
                    kept.append(tf.Variable(0.0))
            return x + 0 * kept[0]

    def model() -> Any:
        return keras.Sequential([keras.Input((8, 8)), Counting(), keras.layers.Flatten(), keras.layers.Dense(10)])

    digits = setup(model_dir=str(tmp_path), train={"steps": 2})
    job, channel = replace(digits, workload=replace(digits.workload, model=model)), RecordingChannel()
    state = build_state(job)
    with pytest.raises(UserError, match="creates other variables in each call"):
        sync._run(tf.distribute.get_strategy(), job, state, 0, channel)
    assert int(state.optimizer.iterations) == 0


def test_a_schedule_has_what_a_callback_sets_in_it(tmp_path: Path) -> None:
    class Scaled(keras.optimizers.schedules.LearningRateSchedule):  # type: ignore[misc]
        def __init__(self) -> None:
            self.scale = tf.Variable(1.0, trainable=False)

        def __call__(self, step: Any) -> Any:
            return 0.1 * self.scale

    class Stops(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_begin(self, epoch: int, logs: object = None) -> None:
            self.model.optimizer._learning_rate.scale.assign(0.0 if epoch else 0.5)

    digits = setup(model_dir=str(tmp_path), train={"steps": 4, "steps_per_epoch": 2, "checkpoint_steps": 2})
    parts: dict[str, Any] = {
        "optimizer": lambda steps, replicas: keras.optimizers.SGD(Scaled()),
        "callbacks": lambda: [Stops()],
    }
    job = replace(digits, workload=replace(digits.workload, **parts))
    state = build_state(job)
    sync._run(tf.distribute.get_strategy(), job, state, 0, RecordingChannel())
    assert float(state.optimizer._learning_rate.scale) == 0
    after_an_epoch, at_the_end = (saved(tmp_path, step)[1] for step in (2, 4))
    assert [name for name in at_the_end if name.startswith("untracked.")] == ["untracked.optimizer.000"]
    assert after_an_epoch["untracked.optimizer.000"] == 0.5
    np.testing.assert_array_equal(after_an_epoch["model.000"], at_the_end["model.000"])


def test_a_checkpoint_of_a_version_that_did_not_save_it_is_continued_with_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as old:
        old.setattr(sync, "adopt", lambda *_: None)
        train(tmp_path, 4)
    assert not any(name.startswith("untracked.") for name in saved(tmp_path, 4)[0])
    _, _, channel = train(tmp_path, 6, resume_step=4)
    lines = [line for line in channel.lines if "the checkpoint has no value of" in line]
    assert len(lines) == 4
    assert saved(tmp_path, 6)[1]["untracked.model.000"] == 2


@pytest.mark.parametrize(
    ("value", "known", "message"),
    [
        ("7", True, "uses the variable seven:0, of string .., which no checkpoint can have"),
        (7, False, "uses the variable seven:0, which was created neither in model"),
    ],
)
def test_what_no_checkpoint_can_have_is_refused_by_name(value: Any, known: bool, message: str, tmp_path: Path) -> None:
    job = setup(model_dir=str(tmp_path))
    state, variable = build_state(job), tf.Variable(value, name="seven")
    if known:
        job.created.add(variable)

    @tf.function(autograph=False)
    def step() -> tf.Tensor:
        read = tf.identity(variable)
        used_by(job, state, tf.compat.v1.get_default_graph())
        return read

    with pytest.raises(UserError, match=message):
        step.get_concrete_function()


@pytest.mark.parametrize("nested", [False, True], ids=["in the step", "in a loop"])
def test_a_table_may_be_read_in_a_step_and_not_changed(nested: bool, tmp_path: Path) -> None:
    """A StringLookup reads one."""
    job = setup(model_dir=str(tmp_path))
    state = build_state(job)
    table = tf.lookup.experimental.MutableHashTable(tf.int64, tf.float32, default_value=0.0)
    key = tf.constant([1], tf.int64)

    def write(i: tf.Tensor) -> tf.Tensor:
        table.insert(key, table.lookup(key) + 1.0)
        return i + 1

    def trace(change: bool) -> None:
        @tf.function(autograph=False)
        def step() -> tf.Tensor:
            read = table.lookup(key)
            if change and nested:
                tf.while_loop(lambda i: i < 2, write, [0])
            elif change:
                write(tf.constant(0))
            used_by(job, state, tf.compat.v1.get_default_graph())
            return read

        step.get_concrete_function()

    trace(change=False)
    with pytest.raises(
        UserError, match=r"a step changes a table or queue \(LookupTableInsertV2\), which is another on"
    ):
        trace(change=True)


@pytest.mark.parametrize("changed", [True, False])
@pytest.mark.parametrize("devices", [1, 2])
def test_replicas_of_one_task_must_not_change_one_variable(devices: int, changed: bool, tmp_path: Path) -> None:
    job = setup({"worker": {"replicas": 1, "cpu_devices": devices}}, strategy="mirrored", model_dir=str(tmp_path))
    state, variable = build_state(job), tf.Variable(0, name="count")
    job.created.add(variable)

    @tf.function(autograph=False)
    def steps() -> tf.Tensor:
        def one(i: tf.Tensor) -> tf.Tensor:
            return i + 1 + (variable.assign_add(1) if changed else variable)

        made = tf.while_loop(lambda i: i < 3, one, (0,))
        assert list(used_by(job, state, tf.compat.v1.get_default_graph())) == ["untracked.file.000"]
        return made

    if changed and devices == 2:
        with pytest.raises(UserError, match=r"changes the variable count:0, .* 2 replicas would change the same one"):
            steps.get_concrete_function()
    else:
        steps.get_concrete_function()
