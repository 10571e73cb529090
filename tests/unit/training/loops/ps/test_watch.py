"""What the chief of a ps job shows of the counters."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from trainer.job.load import build
from trainer.protocol import events
from trainer.training.loops.ps.counters import Reading
from trainer.training.loops.ps.watch import Watch
from trainer.training.loops.time_spent import InputTime
from trainer.training.model.step import Step

WORKERS = 2


def reading(step: int, rows: list[list[float]]) -> Reading:
    """Of rows: a bad ticket, the steps of a closure, the sum of their losses, and those of the figures."""
    made = np.array([int(row[1]) for row in rows], np.int64)
    return Reading(step, step, np.array(rows), made, np.zeros((WORKERS, 3)))


def test_a_line_waits_for_the_figures_of_its_steps(tmp_path: Path) -> None:
    """After a resume at 148 the steps 149 and 150 are made before a worker has told their figures: 0 would be wrong."""
    spec = build(
        {"name": "j", "strategy": "parameter_server", "workload": "digits", "tasks": {"worker": WORKERS, "ps": 1}}
        | {"model_dir": str(tmp_path), "train": {"log_steps": 50}}
    )
    hooked, sent = list[int](), list[Any]()
    job: Any = SimpleNamespace(
        spec=spec,
        task=SimpleNamespace(counts={"worker": WORKERS}),
        batch=8,
        after_run=lambda step, figures: hooked.append(step),
        training=None,
    )
    channel: Any = SimpleNamespace(send=sent.append)
    made = Step(lambda _: (None, None, None), 1, lambda sums, count: {"loss": float(sums[0] / count)})
    watch = Watch(job, made, channel, InputTime(SimpleNamespace(of_one_shard=False)), 148, 600)
    nothing = [0.0, 0.0, 0.0, 0.0]
    watch.look(reading(150, [nothing, nothing]))
    watch.look(reading(158, [nothing, [0.0, 10.0, 5.0, 5.0]]))
    watch._curve._file.close()  # as when its process ends
    watch._curve._writer.close()
    (row,) = (json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert (row["step"], row["loss"]) == (158, 0.5)
    assert hooked == [158]
    steps = [event for event in sent if isinstance(event, events.Step)]
    assert [(step.step, step.figures.get("loss")) for step in steps] == [(150, None), (158, 0.5)]
