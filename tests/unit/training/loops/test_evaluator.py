"""Which checkpoints the evaluator scores, in which order, and how often."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import cast

import pytest

from trainer.job.cluster import tasks_of
from trainer.job.load import build
from trainer.model_dir import checkpoint
from trainer.protocol.events import Done, Event, Scored
from trainer.protocol.orders import Final, Go
from trainer.training.loops import evaluator
from trainer.training.model.state import build_state
from trainer.training.outputs.curve import read
from trainer.training.runtime.channel import Channel
from trainer.training.task import TrainingTask
from trainer.workloads import datasets
from trainer.workloads.load import load_workload

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"),
    # The evaluator's curve is open until its process ends.
    pytest.mark.filterwarnings("ignore:Exception ignored in.*evaluation.jsonl:pytest.PytestUnraisableExceptionWarning"),
]


class Supervisor:
    """A channel's other end: orders the end as soon as one checkpoint is scored."""

    def __init__(self, after: int, final: int) -> None:
        self.final: queue.Queue[Final] = queue.Queue()
        self.events: list[Event] = []
        self._after, self._final = after, final

    def send(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Scored) and event.step == self._after:
            self.final.put(Final(self._final))


@pytest.mark.parametrize("after", [10, 30], ids=["the oldest is scored", "the newest is scored"])
def test_the_newest_checkpoint_is_scored_first_and_once(tmp_path: Path, after: int) -> None:
    spec = build({
        "name": "j", "strategy": "one_device", "workload": "digits", "tasks": {"worker": 1, "evaluator": 1},
        "model_dir": str(tmp_path),
    })  # fmt: skip
    setup = TrainingTask(spec, tasks_of(spec)[0], load_workload(spec), datasets.load("digits"))
    trained = build_state(setup)
    for step in (10, 20, 30):
        meta = {"compatibility_key": setup.compatibility_key, "variables": trained.description()}
        checkpoint.save(spec.directory, step, trained.values(), meta)
    channel = Supervisor(after, final=30)
    evaluator.run(spec, setup.task, lambda: setup, Go(1, 0), cast(Channel, channel))
    scored = [30] if after == 30 else [30, 20, 10]
    assert [event.step for event in channel.events if isinstance(event, Scored)] == scored
    assert [record["step"] for record in read(tmp_path / "evaluation.jsonl")] == scored
    assert channel.events[-1] == Done(30)
