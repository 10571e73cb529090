"""Callbacks in the loop do what they do in Keras' own fit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.tools.harness import csv_rows
from tests.unit.training.callbacks.loop import Recorder, RecordingChannel, compiled, fit, job_of, network, train
from tests.unit.training.jobs import DIGITS, setup, with_data
from trainer.job.cluster import tasks_of
from trainer.job.errors import UserError
from trainer.job.load import build
from trainer.model_dir import checkpoint
from trainer.protocol import events
from trainer.training.callbacks.epochs import Cluster, Epochs
from trainer.training.loops import sync
from trainer.training.loops.progress import Progress, Result
from trainer.training.loops.time_spent import InputTime
from trainer.training.model import batches
from trainer.training.model.state import build_state, prepare
from trainer.training.model.step import make_step
from trainer.training.runtime import per_example
from trainer.training.task import TrainingTask
from trainer.workloads.workload import Shard

pytestmark = pytest.mark.part("training")


def alike(one: list[dict[str, float]], other: list[dict[str, float]]) -> None:
    assert [row.keys() for row in one] == [row.keys() for row in other]
    for here, there in zip(one, other, strict=True):
        assert here == pytest.approx(there, rel=1e-4, abs=1e-6)


def several(folder: Path) -> list[Any]:
    folder.mkdir(exist_ok=True)
    callbacks = keras.callbacks
    return [
        callbacks.ReduceLROnPlateau("val_loss", factor=0.3, patience=1, min_delta=0.1),
        callbacks.CSVLogger(folder / "log.csv"),
        callbacks.ModelCheckpoint(folder / "best.keras", "val_accuracy", save_best_only=True),
        callbacks.ModelCheckpoint(folder / "{epoch:02d}.weights.h5", save_weights_only=True),
        callbacks.EarlyStopping("val_loss", patience=2, min_delta=0.05, restore_best_weights=True),
    ]


def test_epochs_end_as_those_of_keras(tmp_path: Path) -> None:
    job = job_of(tmp_path, lambda folder: several(folder / "loop"), epochs=30)
    ended, _, channel = train(job)
    expected = fit(job, several(tmp_path / "fit"))
    ends = [event.over for event in channel.events if isinstance(event, events.EpochEnd)]
    assert ends == [False, True] * (len(ends) // 2), "or a long validation would count as a hang"
    ours, theirs = csv_rows(tmp_path / "loop/log.csv"), csv_rows(tmp_path / "fit/log.csv")
    alike(ours, theirs)
    assert 3 < len(ours) < 30
    assert len({row["learning_rate"] for row in ours}) > 1
    assert ended.early == f"EarlyStopping: val_loss did not improve for 2 epochs; epoch {len(ours)}"
    assert (ended.stopped, ended.step) == (False, 20 * len(ours))
    names = {path.name for path in (tmp_path / "loop").iterdir()}
    assert names == {path.name for path in (tmp_path / "fit").iterdir()}
    assert ended.weights is not None
    assert ended.weights.by == "EarlyStopping"
    for value, weight in zip(ended.weights.values.values(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(value, weight, rtol=1e-3, atol=1e-5)
    one, other = (keras.saving.load_model(tmp_path / name / "best.keras") for name in ("loop", "fit"))
    for here, there in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-5)


def test_a_killed_job_goes_on_in_the_middle_of_an_epoch_with_the_state_of_its_callbacks(tmp_path: Path) -> None:
    class Dies(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            if epoch == 5:
                raise ArithmeticError("killed")

    def job_in(folder: str, *more: Any) -> TrainingTask:
        made = lambda place: [*several(place / "log"), *more]  # noqa: E731
        return job_of(tmp_path / folder, made, epochs=30, checkpoint_steps=15)

    (tmp_path / "plain").mkdir()
    (tmp_path / "killed").mkdir()
    whole, _, _ = train(job_in("plain"))
    with pytest.raises(UserError, match=r"Dies\.on_epoch_end: ArithmeticError: killed"):
        train(job_in("killed", Dies()))
    job = job_in("killed")
    assert checkpoint.steps(job.spec.directory)[-1] == 105  # in the sixth epoch, which ends at 120
    assert len(csv_rows(tmp_path / "killed/log/log.csv")) == 6
    resumed, _, _ = train(job, resume_step=105)
    alike(csv_rows(tmp_path / "killed/log/log.csv"), csv_rows(tmp_path / "plain/log/log.csv"))
    assert (resumed.early, resumed.step) == (whole.early, whole.step)
    assert whole.weights is not None
    assert resumed.weights is not None
    for name, value in whole.weights.values.items():
        np.testing.assert_allclose(resumed.weights.values[name], value, rtol=1e-4, atol=1e-6)


class Growing(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends the training within an epoch, and sets weights when that ends."""

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.model.stop_training = batch == 9

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.set_weights([weight * 4 for weight in self.model.get_weights()])


@pytest.mark.parametrize("every", [5, 7])
def test_the_checkpoint_of_an_early_end_has_the_weights_after_its_epoch(tmp_path: Path, every: int) -> None:
    job = job_of(tmp_path, lambda _: [Growing()], checkpoint_steps=every)
    keep = build({"name": "j", "strategy": "one_device", "keep_best": {"metric": "val_loss", "mode": "max"}}).keep_best
    ended, model, _ = train(replace(job, spec=job.spec.model_copy(update={"keep_best": keep})))
    newest, best = (checkpoint.newest(folder) for folder in (tmp_path / "run", tmp_path / "run/best"))
    assert newest is not None
    assert best is not None
    assert ended.step == newest.step == best.step == 10  # by far the largest loss
    for i, variable in enumerate(model.variables):
        for saved in (newest, best):
            loaded = checkpoint.load(saved.path)
            assert loaded is not None
            np.testing.assert_array_equal(loaded[1][f"model.{i:03d}"], np.array(variable.value))
    assert newest.meta["epochs"]["number"] == 1


def test_a_job_that_a_callback_has_ended_is_not_trained_again(tmp_path: Path) -> None:
    job = job_of(tmp_path, lambda folder: several(folder / "log"), epochs=30)
    first, _, _ = train(job)
    again, _, _ = train(job, resume_step=first.step)
    assert (again.early, again.step, again.stopped) == (first.early, first.step, False)
    assert first.weights is not None
    assert again.weights is not None
    for name, value in first.weights.values.items():
        np.testing.assert_array_equal(again.weights.values[name], value)
    state = build_state(job)
    assert set(first.weights.values) == {name for name, _ in state.variables if name.startswith("model.")}


def test_a_model_that_was_not_compiled_is_validated_with_the_loss_and_the_metrics_of_the_job(tmp_path: Path) -> None:
    job = job_of(tmp_path, lambda folder: several(folder / "log"), network, epochs=30, learning_rate=0.01)
    ended, _, _ = train(job)
    same = job_of(tmp_path, None, epochs=30)
    fit(same, several(tmp_path / "fit"))
    ours, theirs = csv_rows(tmp_path / "log/log.csv"), csv_rows(tmp_path / "fit/log.csv")
    assert len(ours) > 3
    for here, there in zip(ours, theirs, strict=True):
        assert here == pytest.approx(there, rel=1e-2)
    assert ended.early is not None


def test_a_schedule_of_epochs_is_that_of_keras_also_after_a_restart(tmp_path: Path) -> None:
    def callbacks(folder: Path) -> list[Any]:
        folder.mkdir(exist_ok=True)
        halves = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5 if epoch else rate)
        return [halves, keras.callbacks.CSVLogger(folder / "log.csv")]

    job = job_of(tmp_path, lambda folder: callbacks(folder / "loop"), epochs=2, checkpoint_steps=20)
    train(job)
    longer = job_of(tmp_path, lambda folder: callbacks(folder / "loop"), epochs=4, checkpoint_steps=20)
    train(longer, resume_step=40)
    fit(longer, callbacks(tmp_path / "fit"))
    alike(csv_rows(tmp_path / "loop/log.csv"), csv_rows(tmp_path / "fit/log.csv"))
    rates = [row["learning_rate"] for row in csv_rows(tmp_path / "loop/log.csv")]
    assert rates == pytest.approx([0.01, 0.005, 0.0025, 0.00125])


@pytest.mark.parametrize(
    ("metric", "epoch", "reason"),
    [
        ("accuracy", 10, "an epoch had 20 steps, and now has 10"),
        ("rate", 20, "the figures of a step were loss, accuracy, and now are loss, rate"),
        ("accuracy", 20, None),
    ],
)
def test_a_state_that_does_not_fit_is_left_out_with_a_line_and_files_go_on(
    tmp_path: Path, metric: str, epoch: int, reason: str | None
) -> None:
    def run(name: str, resume_step: int = 0, **settings: int) -> RecordingChannel:
        logger = keras.callbacks.CSVLogger(tmp_path / "log.csv")
        job = job_of(tmp_path, lambda _: [logger], network, checkpoint_steps=20, learning_rate=0.01, **settings)
        job = replace(job, workload=replace(job.workload, metrics={name: per_example.accuracy}))
        return train(job, resume_step)[2]

    run("accuracy", epochs=2)
    before = (tmp_path / "log.csv").read_text()
    channel = run(metric, 40, epochs=60 // epoch, steps_per_epoch=epoch)
    anew = [line for line in channel.lines if "begin anew" in line]
    wanted = f"warning: callbacks(): they begin anew, without their state in checkpoint 40: {reason}"
    assert anew == ([wanted] if reason else [])
    after = (tmp_path / "log.csv").read_text()
    assert after.startswith(before)
    assert after.count("epoch,") == (1 if reason is None else 2)


def test_a_checkpoint_of_another_version_is_continued_without_its_state_of_callbacks(tmp_path: Path) -> None:
    job = job_of(tmp_path, lambda _: [Recorder()], epochs=2)
    train(job)
    (path,) = (tmp_path / "run/checkpoints").glob("step-*/meta.json")
    meta = json.loads(path.read_text())
    del meta["epochs"]["begun"], meta["epochs"]["callbacks"]
    path.write_text(json.dumps(meta))
    more = job_of(tmp_path, lambda _: [Recorder()], epochs=3)
    ended, _, channel = train(more, 40)
    assert ended.step == 60
    (told,) = (line for line in channel.lines if "begin anew" in line)
    assert told == (
        "warning: callbacks(): they begin anew, without their state in checkpoint 40: another version of trainer wrote "
        "it, without begun, callbacks"
    )


def test_weights_that_a_callback_sets_are_trained_on(tmp_path: Path) -> None:
    class Halves(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.model.set_weights([weight / 2 for weight in self.model.get_weights()])

    job = job_of(tmp_path, lambda _: [Halves()], epochs=3)
    ended, model, _ = train(job)
    expected = fit(job, [Halves()])
    for here, there in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-5)
    assert ended.weights is None


class SetsWeights(keras.callbacks.Callback):  # type: ignore[misc]
    """Gives all variables, also those that layers update themselves, another value after each batch and epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.calls += 1
        self.model.set_weights([np.full_like(weight, self.calls) for weight in self.model.get_weights()])

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.on_train_batch_end(0)


def averaged_by(job: TrainingTask, share: Any) -> list[list[Any]]:
    """The model's variables on a task when means over all replicas begin. Its steps change nothing."""
    channel, strategy, source, found = RecordingChannel(), tf.distribute.get_strategy(), job.training, list[list[Any]]()
    state = build_state(job)
    prepare(strategy, job, state, source)
    batch = batches.replica_spec(job, source)
    made = make_step(strategy, job, state, batch)
    cluster = Cluster(strategy.scope, share, lambda: found.append([np.array(v) for v in state.model.variables]))
    epochs = Epochs(job, state, made, channel, cluster, batch, steps=4, step=0, total=12)

    def call(_: int, count: int, __: float) -> Result:
        nothing = np.zeros(made.width, np.float32)
        return Result(np.ones(count, np.float32), np.ones(count, bool), nothing, nothing, False, 0.0, 0.0, 0.0, 0.0)

    progress = Progress(job, made, channel, InputTime(source), 0, 12)
    sync._train(job, state, call, progress, lambda _: epochs.average(), None, epochs)
    return found


def test_tasks_have_the_weights_that_a_callback_sets_before_means_are_taken(tmp_path: Path) -> None:
    def model() -> Any:
        layers = [keras.layers.Flatten(), keras.layers.BatchNormalization(), keras.layers.Dense(10)]
        made = keras.Sequential([keras.Input((8, 8)), *layers])
        made.compile("sgd", loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return made

    train = {"batch_size": 64, "checkpoint_steps": 3, "steps": 12}
    one = setup({"worker": 2}, train=train, model_dir=str(tmp_path))
    job = replace(one, workload=replace(one.workload, model=model, callbacks=lambda: [SetsWeights()]))
    sent: list[Any] = []

    def send(use: int, values: Any) -> Any:
        sent.append((use, values))
        return values

    def receive(use: int, values: Any) -> Any:
        sent_as, received = sent.pop(0)
        assert (use, values.keys()) == (sent_as, received.keys())
        return received

    chiefs, others = averaged_by(job, send), averaged_by(replace(job, task=tasks_of(job.spec)[1]), receive)
    assert sent == []
    assert len(chiefs) == len(others) == 4 + 3, "at each checkpoint and at each epoch's end"
    for here, there in zip(chiefs, others, strict=True):
        assert [float(value.flat[0]) for value in here] == [float(value.flat[0]) for value in there]


def test_the_averages_of_an_optimizer_are_the_final_weights(tmp_path: Path) -> None:
    def averaging() -> Any:
        model = compiled()
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9), loss=loss, metrics=["accuracy"])
        return model

    final: list[Any] = []

    class Keeps(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_end(self, logs: Any = None) -> None:
            final.append(self.model.get_weights())

    job = job_of(tmp_path, lambda _: [Keeps()], averaging, epochs=2)
    train(job)
    expected = fit(job, [])
    for here, there in zip(final[0], expected.get_weights(), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-5)


def test_a_rate_of_each_optimizer_may_be_set(tmp_path: Path) -> None:
    class Halves(keras.Model):  # type: ignore[misc]
        """Trains the kernel by one optimizer and the bias by another."""

        def __init__(self) -> None:
            super().__init__()
            self.layer, self.tracker = keras.layers.Dense(10), keras.metrics.Mean(name="loss")
            self.layer.build((None, 64))
            self.built = True

        def compile(self) -> None:
            super().compile(loss=None)
            self.kernel_optimizer, self.bias_optimizer = keras.optimizers.SGD(0.1), keras.optimizers.SGD(0.2, 0.9)

        def call(self, x: Any) -> Any:
            return self.layer(tf.reshape(tf.cast(x, "float32") / 16, [-1, 64]))

        @property
        def metrics(self) -> list[Any]:
            return [self.tracker]

        def train_step(self, data: Any) -> dict[str, Any]:
            x, y = data
            with tf.GradientTape() as tape:
                loss = keras.ops.mean(keras.losses.sparse_categorical_crossentropy(y, self(x), from_logits=True))
            kernel, bias = tape.gradient(loss, [self.layer.kernel, self.layer.bias])
            self.kernel_optimizer.apply_gradients([(kernel, self.layer.kernel)])
            self.bias_optimizer.apply_gradients([(bias, self.layer.bias)])
            self.tracker.update_state(loss)
            return {"loss": self.tracker.result()}

    class Lowers(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            for optimizer in (self.model.kernel_optimizer, self.model.bias_optimizer):
                optimizer.learning_rate = float(np.array(optimizer.learning_rate.value)) * 0.1
            self.seen = [int(np.array(self.model.bias_optimizer.iterations)), self.model.get_weights()[1].sum()]

    def made() -> Any:
        model = Halves()
        model.compile()
        return model

    ours, theirs = Lowers(), Lowers()
    job = job_of(tmp_path, lambda _: [ours], made, epochs=3, validation_split=0)
    _, model, _ = train(job)
    expected = fit(job, [theirs])
    assert ours.seen == pytest.approx(theirs.seen, rel=1e-3, abs=1e-5)
    for here, there in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-5)
    rates = [float(np.array(each.learning_rate.value)) for each in (model.kernel_optimizer, model.bias_optimizer)]
    assert rates == pytest.approx([1e-4, 2e-4])


def test_an_epoch_of_the_spec_may_be_shorter_at_the_end(tmp_path: Path) -> None:
    def data(shard: Shard) -> Any:
        dataset = tf.data.Dataset.from_tensor_slices((DIGITS["x_train"], DIGITS["y_train"]))
        return dataset.filter(lambda x, y: y < 9)  # of a size that is not known

    ended: list[tuple[int, int]] = []

    class Counts(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            ended.append((epoch, int(np.array(self.model.optimizer.iterations))))

    job = with_data(job_of(tmp_path, lambda _: [Counts()], epochs=None, steps=33, validation_split=0), data)
    with pytest.raises(UserError, match=r"size is not known; give train.steps_per_epoch"):
        train(job)
    job = with_data(
        job_of(tmp_path, lambda _: [Counts()], epochs=None, steps=33, steps_per_epoch=10, validation_split=0), data
    )
    train(job)
    assert ended == [(0, 10), (1, 20), (2, 30), (3, 33)]
