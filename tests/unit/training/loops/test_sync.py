"""What the synchronous loop decides; the loop itself runs in tests/local."""

import gc
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

import trainer
from tests.unit.training.callbacks.loop import RecordingChannel, job_of, train
from tests.unit.training.jobs import DIGITS, setup, with_data
from trainer.job.cluster import tasks_of
from trainer.job.errors import UserError
from trainer.protocol import events
from trainer.training.exchange import gradients
from trainer.training.loops import sync
from trainer.training.loops.progress import Progress, Result
from trainer.training.loops.sync import _affordable
from trainer.training.loops.time_spent import InputTime
from trainer.training.model.state import TrainState
from trainer.training.model.step import Step
from trainer.workloads.workload import Shard

pytestmark = pytest.mark.part("training")


@pytest.mark.parametrize(
    ("pace", "steps"), [(0.0, 1), (1e-3, 2000), (0.2, 10), (0.21, 9), (1.2, 1), (1.0, 2), (2.1, 1), (100.0, 1)]
)
def test_a_call_takes_a_quarter_of_the_time_to_stop_or_one_step(pace: float, steps: int) -> None:
    assert _affordable(pace, 8.0) == steps


@pytest.mark.parametrize(("length", "expected"), [(5, [1, 9, 2]), (None, [1] * 12)])
def test_calls_make_one_step_if_the_rows_of_a_gradient_vary(length: int | None, expected: list[int]) -> None:
    optimizer, table, counts = keras.optimizers.SGD(0.1), keras.Variable(np.zeros((7, 2), np.float32)), list[int]()
    gradients.note_rows(optimizer)
    optimizer.build([table])

    @tf.function(input_signature=[tf.TensorSpec([length, 2]), tf.TensorSpec([length], tf.int32)])
    def update(values: tf.Tensor, rows: tf.Tensor) -> None:
        optimizer.apply([tf.IndexedSlices(values, rows, tf.constant([7, 2]))])

    def call(_: int, count: int, __: float) -> Result:
        counts.append(count)
        update(tf.ones([5, 2]), tf.range(5))
        nothing = np.zeros(0, np.float32)
        return Result(np.ones(count, np.float32), np.ones(count, bool), nothing, nothing, False, 1e-3, 0.0, 0.0, 0.0)

    chiefs = setup({"worker": 2}, train={"steps_per_call": 9})
    job = replace(chiefs, task=tasks_of(chiefs.spec)[1])
    step = Step(lambda batch: batch, 0, lambda sums, count: {})
    progress = Progress(job, step, RecordingChannel(), InputTime(job.training), 0, 12)
    sync._train(job, TrainState(None, optimizer), call, progress, lambda _: None, None, None)
    assert counts == expected


@pytest.mark.parametrize(("missing", "message"), [("files", "nothing matches"), ("name", "KeyError: 'test'")])
def test_test_data_that_are_missing_are_reported_before_the_first_step(
    missing: str, message: str, tmp_path: Path
) -> None:
    def data(shard: Shard) -> object:
        if missing == "files" and shard.split == "test":
            return trainer.files(str(tmp_path / "test-*.tfrecord"), tf.io.parse_tensor)
        return {"train": (DIGITS["x_train"], DIGITS["y_train"])}[shard.split]

    channel = RecordingChannel()
    with pytest.raises(UserError, match=message):
        train(with_data(job_of(tmp_path, None, validation_split=0.0), data), channel=channel)
    assert not any(isinstance(event, events.Start) for event in channel.events)


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in.*metrics.jsonl:pytest.PytestUnraisableExceptionWarning")
def test_test_data_are_read_before_the_first_step_of_a_job_and_not_when_it_resumes(tmp_path: Path) -> None:
    read = []

    def data(shard: Shard) -> object:
        read.append(shard.split)
        return DIGITS["x_train"], DIGITS["y_train"]

    for steps, begin, splits in ((2, 0, ["train", "test"]), (4, 2, ["train"])):
        channel = RecordingChannel()
        job = with_data(job_of(tmp_path, None, steps=steps, epochs=None, validation_split=0.0), data)
        train(replace(job, send=channel.send), begin, channel)
        assert read == splits
        read.clear()
        sent = [event for event in channel.events if isinstance(event, (events.Start, events.EpochEnd))]
        # While they are read deadlines.evaluation holds.
        before = [events.EpochEnd(over=False), events.EpochEnd(over=True)] if not begin else []
        assert sent[:-1] == before
        assert isinstance(sent[-1], events.Start)
    gc.collect()  # the loop leaves it to the end of its process to close files
