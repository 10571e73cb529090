import gc
import json
import math
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.data.experimental.ops.testing import sleep
from tensorflow.python.framework import config

import trainer
from tests.unit.training.callbacks.loop import RecordingChannel, train
from tests.unit.training.jobs import batch, setup, with_data
from trainer.protocol import events
from trainer.training import inputs
from trainer.training.loops.time_spent import InputTime, Spent, parts
from trainer.workloads.workload import Shard

pytestmark = pytest.mark.part("training")

X = tf.data.Dataset.range(4)


# Each: seconds of waiting and in all, steps, the share in a log line, and whether there is a warning.
@pytest.mark.parametrize(
    ("waited", "elapsed", "steps", "shown", "warned"),
    [
        (6.2, 10.0, 100, 0.62, True),
        (0.62, 1.0, 10, 0.62, False),
        (2.0, 10.0, 100, 0.2, False),
        (0.5, 10.0, 100, None, False),
        (6.2, 10.0, 10_000, None, False),
        (0.0, 0.0, 0, None, False),
    ],
)
def test_a_long_wait_is_shown_and_one_of_seconds_is_warned_of(
    waited: float, elapsed: float, steps: int, shown: float | None, warned: bool
) -> None:
    time = InputTime(inputs.source(X, "data()"))
    time.add(waited / 2, elapsed / 2, steps // 2)
    time.add(waited / 2, elapsed / 2, steps // 2)
    assert time.share == pytest.approx(waited / elapsed if elapsed else 0)
    figures, warning = time.take()
    assert figures == ({} if shown is None else {"input_share": pytest.approx(shown)})
    if warned:
        assert warning == (
            "warning: the job waits for its data: 62 % of a step's time (62.0 ms); in data() call cache() before "
            "shuffle(), and map(..., num_parallel_calls=tf.data.AUTOTUNE)"
        )
    else:
        assert warning is None


def test_what_another_task_waited_beyond_this_ones_call_is_not_counted() -> None:
    """Such as while this one, the chief, validated: that wait did not delay the step."""
    time = InputTime(inputs.source(X, "data()"))
    time.add(9.0, 2.0, 10)
    time.add(0.5, 2.0, 10)
    assert time.share == pytest.approx(2.5 / 4)


def test_there_is_one_warning_and_each_log_line_begins_anew() -> None:
    time = InputTime(inputs.source(np.zeros((4, 2)), "data()"))
    time.add(5.0, 10.0, 100)
    warning = time.take()[1] or ""
    assert warning.endswith("; give the tasks more cores, or a larger train.batch_size")
    assert time.share == 0
    time.add(9.0, 10.0, 100)
    figures, second = time.take()
    assert figures == {"input_share": pytest.approx(0.9)}
    assert second is None


def test_short_waits_are_warned_of_only_if_they_follow_each_other() -> None:
    time = InputTime(inputs.source(X, "data()"))
    warned = []
    for waited in (0.9, 0.9, 0.1, 0.9, 0.9, 0.9):
        time.add(waited, 1.0, 10)
        warned.append(time.take()[1] is not None)
    assert warned == [False] * 5 + [True]


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in.*metrics.jsonl:pytest.PytestUnraisableExceptionWarning")
def test_the_loop_measures_what_its_steps_wait(tmp_path: Path) -> None:
    def data(shard: Shard) -> Any:
        batches = tf.data.Dataset.from_tensor_slices(batch()).batch(8)
        return trainer.batched(batches.repeat().apply(sleep(20_000)) if shard.split == "train" else batches)

    job = setup(train={"steps": 20, "log_steps": 10, "batch_size": 8}, model_dir=str(tmp_path))
    train(with_data(job, data))
    gc.collect()  # the loop leaves it to the end of its process to close files
    shares = [json.loads(line)["input_share"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert len(shares) == 2
    assert all(0 <= share <= 1 for share in shares)
    assert max(shares) > 0


class ClockedChannel(RecordingChannel):
    """Notes when each report of steps is sent."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[tuple[float, events.Step]] = []

    def send(self, event: events.Event) -> None:
        super().send(event)
        if isinstance(event, events.Step):
            self.sent.append((time.perf_counter(), event))


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in.*metrics.jsonl:pytest.PytestUnraisableExceptionWarning")
def test_the_parts_of_steps_add_up_to_the_time_that_passes(tmp_path: Path) -> None:
    def data(shard: Shard) -> Any:
        batches = tf.data.Dataset.from_tensor_slices(batch()).batch(8)
        return trainer.batched(batches.repeat().apply(sleep(20_000)) if shard.split == "train" else batches)

    def loss(y: Any, prediction: Any) -> Any:
        # Twice: a dataset sleeps before its element, and before its end.
        with tf.control_dependencies([y]):
            nap = tf.data.Dataset.from_tensors(0).apply(sleep(2_500)).get_single_element()
        with tf.control_dependencies([nap]):
            return tf.reduce_mean(tf.square(prediction), axis=1)

    train_ = {"steps": 60, "steps_per_call": 4, "batch_size": 8}
    job, channel = with_data(setup(train=train_, model_dir=str(tmp_path)), data), ClockedChannel()
    job = replace(job, workload=replace(job.workload, loss=loss, metrics={}))
    train(job, channel=channel)
    gc.collect()
    # The first call, which traces the graph, does not count.
    (traced, _), (begun, first), *_, (before, _), (ended, last) = channel.sent
    made = (last.steps_made or 0) - (first.steps_made or 0)
    names = ("seconds_input", "seconds_compute", "seconds_wait")
    waited, computed, between = (getattr(last, name) - getattr(first, name) for name in names)
    assert last.seconds_exchange is None
    assert made >= 40
    # A sleep may take longer, but not shorter.
    assert computed >= 0.005 * made
    assert waited + computed >= 0.02 * made * 0.9, "batches may be read before they are asked for, but for a few"
    # All of the time from the end of a call to that of a later one, each of which is before its own report is sent and
    # after the report before.
    assert before - begun <= waited + computed + between <= ended - traced


@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Exception ignored in.*metrics.jsonl:pytest.PytestUnraisableExceptionWarning")
def test_the_loop_trains_where_operations_are_deterministic(tmp_path: Path) -> None:
    """TensorFlow then refuses to read the clock."""
    tf.config.experimental.enable_op_determinism()
    try:
        job = setup(train={"steps": 4, "log_steps": 2, "batch_size": 8}, model_dir=str(tmp_path))
        _, _, channel = train(job)
    finally:
        config.disable_op_determinism()
    gc.collect()
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
    *_, last = (event for event in channel.events if isinstance(event, events.Step))
    assert (last.seconds_input, last.seconds_exchange) == (None, None)
    assert last.seconds_compute is not None


def test_what_is_neither_input_nor_exchange_is_compute() -> None:
    assert parts(1.0, 2.0, 10.0, 3.0) == {
        "seconds_input": 1.0,
        "seconds_exchange": 2.0,
        "seconds_compute": 7.0,
        "seconds_wait": 3.0,
    }
    assert parts(6.0, 6.0, 10.0, 0.0)["seconds_compute"] == 0, "clocks differ"


def test_a_part_that_is_unknown_is_in_compute() -> None:
    found = parts(math.nan, math.nan, 10.0, 3.0)
    assert found == {"seconds_input": None, "seconds_exchange": None, "seconds_compute": 10.0, "seconds_wait": 3.0}


def test_ps_workers_count_from_their_first_report_which_traced_the_graph() -> None:
    spent, steps = Spent(2), np.array([5, 0])
    first = spent.look(100.0, steps, np.array([[1.0, 2.0, 9.0], [0.0, 0.0, 0.0]]))
    assert first["worker:0"] == {"steps_made": 0, **parts(0.0, 0.0, 0.0, 0.0)}
    later = spent.look(110.0, steps + 5, np.array([[2.0, 5.0, 17.0], [1.0, math.nan, 3.0]]))
    assert later["worker:0"] == {"steps_made": 5, **parts(1.0, 3.0, 8.0, 2.0)}
    assert later["worker:1"]["steps_made"] == 0
    last = spent.look(111.0, steps + 10, np.array([[2.0, 5.0, 17.0], [2.0, math.nan, 4.0]]))
    assert last["worker:1"]["seconds_exchange"] is None
    assert last["worker:1"]["seconds_input"] == pytest.approx(1.0)
    assert last["worker:0"]["seconds_wait"] == 3.0
