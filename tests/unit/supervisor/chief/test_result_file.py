"""result.json of a successful job."""

from __future__ import annotations

from trainer.job.cluster import tasks_of
from trainer.job.load import build
from trainer.model_dir.result import Training
from trainer.supervisor.chief import result_file
from trainer.supervisor.rendezvous.state_machine import Rendezvous


def test_a_test_figure_that_is_no_number_is_a_warning() -> None:
    job = build({"name": "j", "strategy": "one_device"})
    rendezvous = Rendezvous(job, tasks_of(job)[0], 0, 0.0)
    figures = Training(7, {"loss": float("nan"), "top": 1.0}, None, None, {}, None, None)
    found = result_file.result_of(job, rendezvous, figures, seconds=1.0, warnings=["first"], versions={}, key={})
    assert found.warnings == ["first", "test_loss is nan: no number"]
