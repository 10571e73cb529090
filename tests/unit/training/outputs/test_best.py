"""The best checkpoint is kept, by a figure that is computed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from tests.unit.training import jobs, models, prepared
from trainer.job.errors import UserError
from trainer.job.load import build
from trainer.model_dir import checkpoint, layout
from trainer.model_dir.best import BestCheckpoint, known
from trainer.protocol.events import Event, Line
from trainer.training.model.evaluation import copy_of_model, score_on
from trainer.training.model.state import TrainState, build_state
from trainer.training.outputs import best
from trainer.training.outputs.saver import Saver
from trainer.training.task import TrainingTask
from trainer.workloads.batched import batched

pytestmark = [
    pytest.mark.part("training"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"),
    # The curve of a task is open until its process ends.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class RecordingChannel:
    """A channel whose events are kept."""

    def __init__(self) -> None:
        import threading

        self.stopping, self.events = threading.Event(), list[Event]()

    def send(self, event: Event) -> None:
        self.events.append(event)


def job_in(folder: Path, metric: str = "val_loss", **more: Any) -> TrainingTask:
    spec = {"keep_best": {"metric": metric}, "train": {"validation_split": 0.2}, "model_dir": str(folder), **more}
    job = jobs.with_workload(model=lambda: jobs.network(keras.layers.Dense(10)))
    return replace(job, spec=jobs.setup(**spec).spec)


def save(job: TrainingTask, state: TrainState, step: int, kernel: float, saver: Saver | None = None) -> Saver:
    """A checkpoint with these weights: with labels from 0 to 9 the loss grows with their size."""
    saver = saver or Saver(job, state, RecordingChannel())  # type: ignore[arg-type]
    rng = np.random.default_rng(0)
    state.model.variables[0].assign(rng.normal(size=(64, 10)) * kernel)
    saver.save(step)
    saver.wait()
    return saver


def test_the_checkpoint_with_the_least_loss_is_kept_beyond_those_of_the_newest(tmp_path: Path) -> None:
    job = job_in(tmp_path, train={"validation_split": 0.2, "keep_checkpoints": 1})
    state = build_state(job)
    saver = None
    for step, kernel in ((10, 1.0), (20, 0.01), (30, 0.5), (40, 2.0)):
        saver = save(job, state, step, kernel, saver)
    assert checkpoint.steps(tmp_path) == [40]
    assert checkpoint.steps(tmp_path / "best") == [20]
    lines = layout.validation(tmp_path).read_text().splitlines()
    losses = {record["step"]: record["val_loss"] for record in map(json.loads, lines)}
    assert list(losses) == [10, 20, 30, 40]
    keep = job.spec.keep_best
    assert keep is not None
    kept = best.Best(job, keep)
    assert kept.newest == BestCheckpoint("val_loss", 20, losses[20])
    # The figure is that of Keras on the part of the arrays that was split off.
    x, y = jobs.DIGITS["x_train"], jobs.DIGITS["y_train"]
    part = int(len(x) * 0.8)
    model: Any = kept.model(RecordingChannel())  # type: ignore[arg-type]
    model.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    assert model.evaluate(x[part:], y[part:], verbose=0) == pytest.approx(losses[20], rel=1e-5)


def test_a_restart_remembers_the_best_and_scores_a_checkpoint_that_was_not_scored(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    state = build_state(job)
    saver = save(job, state, 10, 0.1)
    saver._channel.stopping.set()  # the task is asked to stop: the checkpoint counts, a validation may take too long
    save(job, state, 20, 0.01, saver)
    assert checkpoint.steps(tmp_path / "best") == [10]
    again = save(job, state, 30, 1.0)
    assert checkpoint.steps(tmp_path / "best") == [20]
    save(job, state, 40, 0.001, again)
    assert checkpoint.steps(tmp_path / "best") == [40]


@pytest.mark.parametrize("compiled", [True, False])
def test_a_stop_ends_a_validation_whose_checkpoint_is_scored_later(tmp_path: Path, compiled: bool) -> None:
    channel, read = RecordingChannel(), list[int]()

    def model() -> Any:
        made = jobs.network(keras.layers.Dense(10))
        if compiled:
            made.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return made

    def examples() -> Iterator[Any]:
        for i in range(100):
            read.append(i)
            if asks and i == 2:
                channel.stopping.set()
            yield np.ones((8, 8, 8), "float32"), np.full(8, 3)

    def validation(_: Any) -> Any:
        signature = tf.TensorSpec([8, 8, 8]), tf.TensorSpec([8], tf.int64)
        dataset = tf.data.Dataset.from_generator(examples, output_signature=signature)
        return batched(dataset.apply(tf.data.experimental.assert_cardinality(100)))

    asks = False
    job = job_in(tmp_path, train={})
    job = replace(job, workload=replace(job.workload, model=model, validation=validation))
    state = build_state(job)
    saver = Saver(job, state, channel)  # type: ignore[arg-type]
    save(job, state, 10, 1.0, saver)
    read.clear()
    asks = True
    save(job, state, 20, 0.01, saver)
    assert len(read) < 80
    save(job, state, 25, 0.001, saver)
    assert checkpoint.steps(tmp_path / "best") == [10]
    asks = False
    assert checkpoint.steps(tmp_path) == [10, 20, 25]
    last = best.at_the_end(job, channel, 25)  # type: ignore[arg-type]
    assert last is not None
    records = [json.loads(line) for line in layout.validation(tmp_path).read_text().splitlines()]
    assert [record["step"] for record in records] == [10, 20, 25]
    losses = {record["val_loss"]: record["step"] for record in records}
    assert last.newest is not None
    assert last.newest.step == losses[min(losses)]


def test_a_checkpoint_is_scored_once(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    state = build_state(job)
    saver = save(job, state, 10, 1.0)
    save(job, state, 10, 0.01, saver)  # an early end at a checkpoint's step; the checkpoint that is there is kept
    save(job, state, 10, 0.01)  # and of a start after it
    records = [json.loads(line) for line in layout.validation(tmp_path).read_text().splitlines()]
    assert [record["step"] for record in records] == [10]
    folders = [checkpoint.folder(folder) for folder in (tmp_path / "best", tmp_path)]
    kept, last = (checkpoint.load(folder / checkpoint.name(10)) for folder in folders)
    assert kept is not None
    assert last is not None
    assert (kept[1]["model.000"] == last[1]["model.000"]).all()


def averaged() -> Any:
    return models.plain(keras.optimizers.SGD(0.1, use_ema=True), metrics=[keras.metrics.AUC(), models.NeverReset()])


KINDS: dict[str, dict[str, Any]] = {
    "compiled": {"model": averaged},
    "functions": {
        "model": lambda: keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)]),
        "optimizer": lambda steps, replicas: keras.optimizers.Adam(0.1, use_ema=True),
    },
    "own loss": {"model": models.own_loss},
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_checkpoints_are_scored_in_the_same_graphs_as_by_new_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    validation = tf.data.Dataset.from_tensor_slices((models.X[:100], models.Y[:100]))
    job = prepared.job_of(**KINDS[kind])
    workload = replace(job.workload, validation=lambda shard: validation)
    spec = jobs.setup(keep_best={"metric": "val_loss"}, model_dir=str(tmp_path)).spec
    job = replace(job, spec=spec, workload=workload)
    state, _ = prepared.built(job)
    monkeypatch.setattr(context.Context, "remove_function", lambda *_: None)  # tensorflow_patches.keep_functions
    saver = Saver(job, state, RecordingChannel())  # type: ignore[arg-type]
    rng, given, graphs = np.random.default_rng(1), list[checkpoint.Values](), list[int]()
    for step in range(1, 5):
        for _, variable in state.variables:
            variable.assign(rng.uniform(0, 1, variable.shape))
        given.append(state.values())
        saver.save(step)
        graphs.append(len(context.context().list_function_names()))
    saver.wait()
    assert len(set(graphs)) == 1
    records = [json.loads(line) for line in layout.validation(tmp_path).read_text().splitlines()]
    found = [{name: value for name, value in each.items() if name.startswith("val_")} for each in records]
    data = job.validation()
    assert data is not None
    fresh = [score_on(job, copy_of_model(job, values), data) for values in given]
    assert found == [{f"val_{name}": pytest.approx(v, rel=1e-5) for name, v in each.items()} for each in fresh]
    assert len({each["val_loss"] for each in found}) == 4


def test_what_a_killed_task_left_of_a_best_checkpoint_is_deleted(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    offer(job, 10, 0.5)
    left = tmp_path / "best/checkpoints/.tmp-step-00000020-1"
    left.mkdir()
    (left / "variables.npz").write_bytes(bytes(100))
    assert job.spec.keep_best is not None
    best.Best(job, job.spec.keep_best)
    assert [path.name for path in (tmp_path / "best/checkpoints").iterdir()] == ["step-00000010"]


def offer(job: TrainingTask, step: int, figure: float, kept: best.Best | None = None) -> best.Best:
    assert job.spec.keep_best is not None
    kept = kept or best.Best(job, job.spec.keep_best)
    kept.offer(step, {job.spec.keep_best.metric: figure}, {"model.000": np.zeros(1)}, {})
    return kept


def test_of_two_that_a_killed_task_leaves_the_better_one_counts(tmp_path: Path) -> None:
    job = job_in(tmp_path, "val_accuracy")
    offer(job, 10, 0.5)
    meta = {"compatibility_key": job.compatibility_key, "best": {"metric": "val_accuracy", "value": 0.75}}
    checkpoint.save(tmp_path / "best", 5, {"model.000": np.ones(1)}, meta)
    assert known(job.spec, job.compatibility_key) == BestCheckpoint("val_accuracy", 5, 0.75)
    offer(job, 20, 0.7)
    offer(job, 30, float("nan"))
    assert known(job.spec, job.compatibility_key) == BestCheckpoint("val_accuracy", 5, 0.75)
    offer(job, 40, 0.8)
    assert checkpoint.steps(tmp_path / "best") == [40]


def test_of_checkpoints_without_a_finite_figure_none_is_the_best_and_a_line_tells_it(tmp_path: Path) -> None:
    job, channel = job_in(tmp_path), RecordingChannel()
    kept = offer(job, 20, float("inf"), offer(job, 10, float("nan")))
    assert kept.newest is None
    assert kept.model(channel) is None  # type: ignore[arg-type]
    assert channel.events == [
        Line("warning: keep_best: no checkpoint is the best, because val_loss is not finite at any")
    ]


def test_the_best_of_another_metric_or_job_is_forgotten(tmp_path: Path) -> None:
    offer(job_in(tmp_path, "val_accuracy"), 10, 0.5)
    offer(job_in(tmp_path, "val_loss"), 20, 0.9)
    assert checkpoint.steps(tmp_path / "best") == [20]
    offer(job_in(tmp_path, "val_loss", train={"validation_split": 0.2, "seed": 3}), 30, 1.9)
    assert checkpoint.steps(tmp_path / "best") == [30]


def test_a_step_that_is_trained_again_replaces_itself(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    kept = offer(job, 10, 0.5)
    offer(job, 10, 0.4, kept)
    assert known(job.spec, job.compatibility_key) == BestCheckpoint("val_loss", 10, 0.4)


@pytest.mark.parametrize("every", [44, 45])
def test_a_job_with_a_single_checkpoint_has_nothing_to_compare(tmp_path: Path, every: int) -> None:
    job, channel = (
        job_in(tmp_path, train={"validation_split": 0.2, "steps": 45, "checkpoint_steps": every}),
        RecordingChannel(),
    )
    Saver(job, build_state(job), channel)  # type: ignore[arg-type]
    warning = "warning: keep_best: the only checkpoint is that of step 45; set train.checkpoint_steps below it"
    assert [event.text for event in channel.events if isinstance(event, Line)] == [warning] * (every == 45)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (
            {"train": {}},
            "'val_loss': there is no validation data; define validation(shard), or set train.validation_split",
        ),
        ({"metric": "val_auc"}, "'val_auc': is not computed; the figures are val_loss, val_accuracy"),
        (
            {"metric": "auc", "tasks": {"worker": 1, "evaluator": 1}},
            "'auc': is not computed; the figures are loss, acc",
        ),
    ],
)
def test_a_figure_that_nobody_computes_is_refused_before_the_first_step(
    tmp_path: Path, more: dict[str, Any], message: str
) -> None:
    job = job_in(tmp_path, **more)
    with pytest.raises(UserError) as error:
        Saver(job, build_state(job), RecordingChannel())  # type: ignore[arg-type]
    assert str(error.value).startswith(f"keep_best.metric: {message}")


def test_the_names_of_a_compiled_model_are_known(tmp_path: Path) -> None:
    def model() -> Any:
        made = jobs.network(keras.layers.Dense(10))
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        made.compile("sgd", loss, metrics=[keras.metrics.SparseTopKCategoricalAccuracy(name="top")])
        return made

    job = job_in(tmp_path)
    job = replace(
        job,
        spec=job.spec.model_copy(
            update={"keep_best": build(KEPT | {"keep_best": {"metric": "val_top5", "mode": "max"}}).keep_best}
        ),
    )
    job = replace(job, workload=replace(job.workload, model=model))
    with pytest.raises(UserError, match="'val_top5': is not computed; the figures are val_loss, val_top"):
        Saver(job, build_state(job), RecordingChannel())  # type: ignore[arg-type]


KEPT = {"name": "j", "strategy": "one_device"}


@pytest.mark.parametrize(
    ("keep", "direction"),
    [
        ({"metric": "val_loss"}, "min"),
        ({"metric": "val_accuracy"}, "max"),
        ({"metric": "val_root_mean_squared_error"}, "min"),
        ({"metric": "val_top", "mode": "max"}, "max"),
        ({"metric": "val_loss", "mode": "max"}, "max"),
    ],
)
def test_the_direction_follows_from_the_name_or_is_given(keep: dict[str, str], direction: str) -> None:
    given = build(KEPT | {"keep_best": keep}).keep_best
    assert given is not None
    assert given.direction == direction
    assert given.better(1.0, 0.5) == (direction == "max")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"keep_best": {"metric": "val_top"}},
            "keep_best.mode: 'auto': 'val_top' does not show what is better; set min",
        ),
        (
            {"keep_best": {"metric": "accuracy"}},
            "which an evaluator computes: add tasks.evaluator, or use val_accuracy",
        ),
        (
            {"keep_best": {"metric": "val_loss"}, "strategy": "graph", "workload": "sum"},
            "has no checkpoints; remove it",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(KEPT | spec)
