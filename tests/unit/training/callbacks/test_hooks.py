"""Hooks are called as in Keras' own fit: in its order, with its logs, and through stops and restarts."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.callbacks.loop import Recorder, RecordingChannel, fit, job_of, network, train
from trainer.training.task import TrainingTask

pytestmark = pytest.mark.part("training")


def test_hooks_of_batches_have_the_logs_of_keras_and_set_the_rate_of_the_next_step(tmp_path: Path) -> None:
    ours, theirs = Recorder(), Recorder()
    job = job_of(tmp_path, lambda _: [ours], epochs=5)
    ended, model, channel = train(job)
    expected = fit(job, [theirs])
    assert [call[:2] for call in ours.calls if call[0] != "end"] == [
        call[:2] for call in theirs.calls if call[0] != "end"
    ]
    for one, other in zip(ours.calls, theirs.calls, strict=True):
        assert one[1:] == pytest.approx(other[1:], rel=1e-4)
    assert ended.early == "Recorder: on_epoch_end has set model.stop_training; epoch 3"
    for here, there in zip(model.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-5)
    assert sum("hooks of batches (Recorder): each graph call has one step" in line for line in channel.lines) == 1


def test_a_stop_within_an_epoch_ends_it_as_in_keras(tmp_path: Path) -> None:
    class Stops(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.ended: list[Any] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 12:
                self.model.stop_training = True

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.ended.append((epoch, logs["loss"]))

    ours, theirs = Stops(), Stops()
    job = job_of(tmp_path, lambda _: [ours])
    ended, _, _ = train(job)
    fit(job, [theirs])
    assert ended.step == 13
    assert ended.early == "Stops: on_train_batch_end has set model.stop_training; epoch 1"
    assert ours.ended == [(0, pytest.approx(theirs.ended[0][1], rel=1e-4))]


@pytest.mark.parametrize("frequency", [7, 33])
def test_models_are_saved_each_so_many_batches(tmp_path: Path, frequency: int) -> None:
    def callbacks(folder: Path) -> list[Any]:
        path = folder / "{epoch}-{batch}.weights.h5"
        return [keras.callbacks.ModelCheckpoint(path, save_weights_only=True, save_freq=frequency)]

    job = job_of(tmp_path, lambda folder: callbacks(folder / "loop"), epochs=4)
    train(job)
    fit(job, callbacks(tmp_path / "fit"))
    found, expected = (sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("loop", "fit"))
    assert found == expected
    assert len(found) == 80 // frequency
    for name in found:
        ours, theirs = network(), network()
        ours.load_weights(tmp_path / "loop" / name)
        theirs.load_weights(tmp_path / "fit" / name)
        for here, there in zip(ours.get_weights(), theirs.get_weights(), strict=True):
            np.testing.assert_allclose(here, there, rtol=1e-3, atol=1e-5)


def test_a_stop_during_a_validation_leaves_the_end_of_the_epoch_to_the_next_start(tmp_path: Path) -> None:
    channel = RecordingChannel()

    class Asks(keras.callbacks.Callback):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.ended: list[int] = []

        def on_test_begin(self, logs: Any = None) -> None:
            if len(self.ended) == 1:
                channel.stopping.set()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.ended.append(epoch)

    first = Asks()
    ended, _, _ = train(job_of(tmp_path, lambda _: [first]), channel=channel)
    assert (ended.stopped, ended.step, first.ended) == (True, 40, [0])
    second = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: first.ended.append(epoch))
    ended, _, _ = train(job_of(tmp_path, lambda _: [second]), resume_step=40)
    assert first.ended == list(range(8))
    assert (ended.stopped, ended.step) == (False, 160)


class Asked(keras.callbacks.Callback):  # type: ignore[misc]
    """Records hooks; in one of them the task is asked to stop, and in one it ends the training."""

    def __init__(self, calls: list[Any], ends: Any = None, asked: Any = None, stop: Any = None) -> None:
        super().__init__()
        self._ends, self._asked, self._stop = ends, asked, stop
        self._calls: Callable[[], list[Any]] = lambda: calls
        self.epoch = 0

    def get_state(self) -> int:
        return self.epoch

    def set_state(self, state: int) -> None:
        self.epoch = state

    def _note(self, *call: Any) -> None:
        self._calls().append(call)
        if call == self._asked:
            self._stop()
        if call == self._ends:
            self.model.stop_training = True

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch
        self._note("epoch begin", epoch)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._note("batch begin", self.epoch, batch)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._note("batch end", self.epoch, batch)

    def on_test_begin(self, logs: Any = None) -> None:
        if ("validated", self.epoch) not in self._calls():
            self._note("validated", self.epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._note("epoch end", epoch)

    def on_train_end(self, logs: Any = None) -> None:
        self._note("end")


def hooks_of_keras(epochs: Sequence[int], ends: Any) -> list[Any]:
    """Those of epochs with so many batches, of which one ends the training (TensorFlowTrainer.fit)."""
    calls: list[Any] = []
    for epoch, batches_in_epoch in enumerate(epochs):
        calls.append(("epoch begin", epoch))
        for batch in range(batches_in_epoch):
            calls += [("batch begin", epoch, batch), ("batch end", epoch, batch)]
            if ends in calls:
                break
        calls += [("validated", epoch), ("epoch end", epoch)]
        if ends in calls:
            break
    return [*calls, ("end",)]


@pytest.mark.parametrize(
    ("asked", "ends"),
    [
        (("batch end", 1, 1), None),
        (("batch end", 1, 3), None),
        (("validated", 2), None),
        (("batch end", 2, 1), None),
        (("batch end", 1, 1), ("batch end", 1, 1)),
        (("validated", 1), ("batch end", 1, 1)),
        (None, ("epoch begin", 1)),
        (None, ("batch begin", 1, 2)),
    ],
)
def test_hooks_are_called_as_without_an_interruption(tmp_path: Path, asked: Any, ends: Any) -> None:
    def job_with(callback: Any) -> TrainingTask:
        return job_of(tmp_path, lambda _: [callback], steps=10, epochs=None, steps_per_epoch=4)  # the last is shorter

    channel, calls = RecordingChannel(), list[Any]()
    ended, _, _ = train(job_with(Asked(calls, ends, asked, channel.stopping.set)), channel=channel)
    assert ended.stopped == (asked is not None)
    if ended.stopped:
        ended, _, _ = train(job_with(Asked(calls, ends)), resume_step=ended.step)
    assert not ended.stopped
    assert calls == hooks_of_keras((4, 4, 2), ends)


def test_a_callback_without_a_state_is_told_the_epoch_again_and_what_it_sets_then_is_undone(tmp_path: Path) -> None:
    class Halves(keras.callbacks.Callback):  # type: ignore[misc]
        """Halves the rate in each epoch; once it asks for a stop in the middle of the second one."""

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.epoch = epoch
            self.model.optimizer.learning_rate = float(np.array(self.model.optimizer.learning_rate.value)) / 2

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            seen.append((self.epoch, batch, float(np.array(self.model.optimizer.learning_rate.value))))
            if len(seen) == 10:
                channel.stopping.set()

    channel, seen = RecordingChannel(), list[Any]()
    made: dict[str, Any] = {"steps": 20, "epochs": None, "steps_per_epoch": 8}
    first, _, _ = train(job_of(tmp_path, lambda _: [Halves()], **made), channel=channel)
    assert first.stopped
    assert 8 < first.step < 16
    train(job_of(tmp_path, lambda _: [Halves()], **made), resume_step=first.step)
    wanted = [(step // 8, step % 8, 0.01 / 2 ** (step // 8 + 1)) for step in range(20)]
    assert seen == [(epoch, batch, pytest.approx(rate)) for epoch, batch, rate in wanted]
    assert sum("checkpoints do not keep epoch of Halves" in line for line in channel.lines) == 1


def test_an_ended_job_that_is_given_more_epochs_calls_all_their_hooks(tmp_path: Path) -> None:
    calls: list[Any] = []

    def job_of_epochs(epochs: int, ends: Any = None) -> TrainingTask:
        return job_of(tmp_path, lambda _: [Asked(calls, ends)], epochs=epochs, steps_per_epoch=4)

    ended, _, _ = train(job_of_epochs(3, ends=("epoch end", 1)))
    assert calls == hooks_of_keras((4, 4), None)
    train(job_of_epochs(4), resume_step=ended.step)
    assert calls == hooks_of_keras((4, 4), None) + hooks_of_keras((0, 0, 4, 4), None)[2 * 3 :]


@pytest.mark.parametrize("ends", [("epoch begin", 1), ("batch begin", 1, 2)])
def test_the_hooks_of_keras_are_those(tmp_path: Path, ends: Any) -> None:
    calls: list[Any] = []
    fit(job_of(tmp_path, None, epochs=3, steps_per_epoch=4), [Asked(calls, ends)])
    assert calls == hooks_of_keras((4, 4, 4), ends)


def test_summaries_are_on_disk_at_the_end_of_an_epoch(tmp_path: Path) -> None:
    sizes = []

    def size(*_: object) -> None:
        sizes.append(sum(path.stat().st_size for path in (tmp_path / "board/train").iterdir()))

    def callbacks(folder: Path) -> list[Any]:
        return [keras.callbacks.TensorBoard(folder / "board"), keras.callbacks.LambdaCallback(on_epoch_begin=size)]

    train(job_of(tmp_path, callbacks, epochs=3))
    assert len(set(sizes)) == 3
    assert sizes == sorted(sizes)
    names = {value.tag for path in (tmp_path / "board/validation").iterdir() for event in
             tf.compat.v1.train.summary_iterator(str(path)) for value in event.summary.value}  # fmt: skip
    assert {"epoch_loss", "epoch_accuracy"} <= names
