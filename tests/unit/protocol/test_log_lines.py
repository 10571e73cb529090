from typing import Any

import pytest

from trainer.job.cluster import tasks_of
from trainer.job.derived import replicas_in_sync
from trainer.job.load import build
from trainer.protocol.log_lines import FAILURE_MARK, first_line, log_error, progress_line, start_line

MIRRORED, SERVED = "multi_worker_mirrored", "parameter_server"

# Each: strategy, tasks, train, which task; and the rest of its line after "task=NAME strategy=STRATEGY ".
START: list[tuple[str, dict[str, Any], dict[str, Any], int, str]] = [
    (MIRRORED, {"worker": 1}, {}, 0, "workers=1 ps=0 replicas_in_sync=1 global_batch=64 per_replica=64"),
    (MIRRORED, {"worker": 3}, {}, 1, "workers=3 ps=0 replicas_in_sync=3 global_batch=192 per_replica=64"),
    (MIRRORED, {"chief": 1, "worker": 2}, {}, 2, "workers=3 ps=0 replicas_in_sync=3 global_batch=192 per_replica=64"),
    (
        MIRRORED,
        {"worker": {"replicas": 2, "gpus": 4}},
        {"global_batch_size": 256},
        0,
        "workers=2 ps=0 replicas_in_sync=8 global_batch=256 per_replica=32",
    ),
    (
        SERVED,
        {"worker": 4, "ps": 2, "evaluator": 1},
        {"batch_size": 32},
        6,
        "workers=4 ps=2 replicas_in_sync=1 global_batch=32 per_replica=32",
    ),
]


@pytest.mark.parametrize(("strategy", "tasks", "train", "index", "line"), START, ids=range(len(START)))
def test_the_start_line_distinguishes_a_cluster_from_tasks_that_train_alone(
    strategy: str, tasks: dict[str, Any], train: dict[str, Any], index: int, line: str
) -> None:
    spec = build({"name": "j", "strategy": strategy, "tasks": tasks, "train": train})
    task = tasks_of(spec)[index]
    said = start_line(spec, task, replicas_in_sync(spec, task.counts), 1200)
    assert said == f"task={task.name} strategy={strategy} {line} resume_step=1200"


PROGRESS: list[tuple[dict[str, float], dict[str, dict[str, float]] | None, str]] = [
    ({"loss": 0.123456, "examples_per_second": 12345.6}, None, "loss=0.1235 examples_per_second=12346"),
    ({"loss": 1.0}, {}, "loss=1"),
    ({"loss": 1.0}, {"worker:0": {"loss": 1.0}}, "loss=1"),
    (
        {"loss": 1.0},
        {"worker:0": {"accuracy": 0.5}, "worker:2": {"accuracy": 0.98765}},
        "loss=1 | batch accuracy worker:0=0.5 worker:2=0.9877",
    ),
]


@pytest.mark.parametrize(("figures", "workers", "line"), PROGRESS)
def test_the_progress_line_shows_step_rate_and_time_left(
    figures: dict[str, float], workers: dict[str, dict[str, float]] | None, line: str
) -> None:
    assert progress_line(100, 600, figures, workers) == f"step 100/600 {line}"


def test_the_first_line_names_the_task_its_versions_and_its_devices() -> None:
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": {"cpu": 2, "gpus": 1}}})
    line = first_line(spec, tasks_of(spec)[0], {"tensorflow": "2.21.0", "keras": "3.15.1"})
    assert line == "worker:0 of j has started: tensorflow=2.21.0 keras=3.15.1 cpus=2 gpus=1"


def test_each_line_of_a_failure_has_the_launcher_s_mark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log_error("one")
    monkeypatch.setenv(FAILURE_MARK, "mark:")
    log_error("two\nthree")
    assert capsys.readouterr().err == "trainer: one\nmark:trainer: two\nmark:trainer: three\n"
