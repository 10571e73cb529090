"""The text of /metrics, as Prometheus' own parser reads it; tests/local/test_monitoring.py has that of real jobs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.unit.supervisor.ports import HOST, IDENTITY, get, serving
from trainer.job.errors import Exit, UserError
from trainer.protocol.child import ChildStatus, measured
from trainer.protocol.status import JobStatus, Straggler, TaskRow, TaskStatus
from trainer.supervisor import preflight
from trainer.supervisor.control_port import peers, server
from trainer.supervisor.metrics import prometheus
from trainer.supervisor.metrics.gpus import Gpu
from trainer.supervisor.metrics.usage import Usage

OWN: dict[str, Any] = {
    "job": "j",
    "task": "chief:0",
    "strategy": "parameter_server",
    "phase": "running",
    "generation": 2,
    "restarts": 1,
    "standby": False,
}
VERSIONS = {"trainer": "1", "tensorflow": "2", "keras": "3", "python": "3.13"}
Key = tuple[str, tuple[tuple[str, str], ...]]


def task(figures: dict[str, object] | None = None, child: ChildStatus | None = None) -> TaskStatus:
    return TaskStatus(**OWN, **vars(replace(child or ChildStatus(), figures=figures or {})))


def job(**more: Any) -> JobStatus:
    return JobStatus(
        **OWN,
        last_checkpoint=500,
        waiting_for=None,
        seconds=1.0,
        events=[],
        end=None,
        **{"tasks": {}, **more},
    )


def read(text: bytes) -> dict[Key, float]:
    """Samples by name and labels other than job_name and task; each occurs once."""
    found: dict[Key, float] = {}
    for family in text_string_to_metric_families(text.decode()):
        assert family.documentation
        assert family.type == ("counter" if f"{family.name}_total"[8:] in prometheus.METRICS else "gauge")
        for sample in family.samples:
            labels = {"job_name": "j", "task": "chief:0"}
            key = (sample.name[8:], tuple(sorted(item for item in sample.labels.items() if item not in labels.items())))
            assert key not in found
            found[key] = sample.value
    return found


def test_figures_of_a_task() -> None:
    parts = {"input": 1.0, "compute": 2.0, "exchange": 0.7, "wait": 0.5}
    child = ChildStatus(
        step=30, steps=400, pid=1, child_pid=2, line="x", input_share=0.1, steps_made=9,
        seconds_input=1.0, seconds_compute=2.0, seconds_exchange=0.7, seconds_wait=0.5,
        last_checkpoint=30, checkpoints=3, seconds_saving=0.1, seconds_writing=0.2,
    )  # fmt: skip
    found = read(prometheus.text(task({"loss": 0.5, "auc": 0.9, "examples_per_second": 7.0}, child), {}, VERSIONS))
    wanted: dict[Key, float] = {
        ("build_info", tuple(sorted(VERSIONS.items()))): 1,
        **{
            ("phase", (("phase", phase),)): int(phase == "running")
            for phase in ("forming", "running", "done", "failed")
        },
        ("generation", ()): 2,
        ("child_restarts_total", ()): 1,
        ("step", ()): 30,
        ("target_step", ()): 400,
        ("loss", ()): 0.5,
        ("metric", (("metric", "auc"),)): 0.9,
        ("examples_per_second", ()): 7,
        ("steps_total", ()): 9,
        **{("step_seconds_total", (("part", part),)): seconds for part, seconds in parts.items()},
        ("checkpoints_total", ()): 3,
        ("checkpoint_pause_seconds_total", ()): 0.1,
        ("checkpoint_write_seconds_total", ()): 0.2,
    }
    assert found == wanted


def test_the_chief_shows_the_job_and_the_ps_workers_that_it_measures() -> None:
    rows = {"ps:0": TaskRow(state="running"), "worker:0": TaskRow(state="lost")}
    status = job(
        tasks=rows,
        restarts_by_cause={"killed": 3, "hang": 0},
        refused_reports={"not_signed": 3, "malformed": 1},
        checkpoint_time=1e9,
        checkpoint_bytes=5,
        straggler=Straggler("worker:0", "input", "worker:0 is slow"),
    )
    status.figures = {"examples_per_second": 9.0}
    worker: dict[str, object] = {
        "step": 3,
        "steps_made": 2,
        "seconds_input": 1.0,
        "loss": 0.5,
        "auc": 1.0,
        "examples_per_second": 9.0,
    }
    found = read(prometheus.text(status, {"worker:0": measured(worker)}, VERSIONS))
    assert found[("task_up", (("task", "ps:0"),))] == 1
    assert found[("task_up", (("task", "worker:0"),))] == 0
    assert [found[("task_slow", (("task", name),))] for name in ("ps:0", "worker:0")] == [0, 1]
    assert found[("restarts_total", (("cause", "killed"),))] == 3
    assert found[("restarts_total", (("cause", "hang"),))] == 0
    assert found[("refused_reports_total", ())] == 4
    assert found[("checkpoint_step", ())] == 500
    assert found[("checkpoint_timestamp_seconds", ())] == 1e9
    assert found[("checkpoint_size_bytes", ())] == 5
    assert found[("steps_total", (("task", "worker:0"),))] == 2
    assert found[("step_seconds_total", (("part", "input"), ("task", "worker:0")))] == 1
    assert [key for key in found if key[0] == "examples_per_second"] == [
        ("examples_per_second", (("task", "worker:0"),))
    ]
    assert not [key for key in found if key[0] == "metric"], "their number is that of the workers times the metrics"


def test_the_rate_of_the_chiefs_task_is_its_own_and_not_that_of_all() -> None:
    rows = {name: TaskRow(state="running", figures={"examples_per_second": 5.0}) for name in ("chief:0", "worker:0")}
    status = job(tasks=rows)
    status.figures = {"examples_per_second": 10.0}
    assert read(prometheus.text(status, {}, VERSIONS))[("examples_per_second", ())] == 5


def test_what_a_task_uses() -> None:
    gpus = [Gpu(0, "GPU-a", 0.5, 10, 20), Gpu(1, "GPU-b", None, 1, 2)]
    found = read(prometheus.text(task(), {}, VERSIONS, Usage(1.5, 100, None), gpus))
    first, second = ((("gpu", str(i)), ("uuid", f"GPU-{letter}")) for i, letter in enumerate("ab"))
    assert found[("cpu_seconds_total", ())] == 1.5
    assert found[("memory_bytes", ())] == 100
    assert ("memory_limit_bytes", ()) not in found
    assert found[("gpu_utilization_ratio", first)] == 0.5
    assert ("gpu_utilization_ratio", second) not in found
    assert found[("gpu_memory_used_bytes", second)] == 1
    assert found[("gpu_memory_size_bytes", second)] == 2


def test_what_a_child_sends_cannot_break_the_format() -> None:
    """Its names become values of a label; its values may be anything that JSON has."""
    evil = 'a"} 1\ntrainer_task_up{task="x'
    names = {evil: 1, "a\ud800": 2, "b\n": 3, "b\t": 4, "n" * 1000: 5, "text": "1", "truth": True, "huge": 10**400}
    found = read(prometheus.text(task({**names, "loss": float("nan")}), {}, VERSIONS))
    given = {labels[0][1]: value for (name, labels), value in found.items() if name == "metric"}
    assert given == {evil.replace("\n", "_"): 1, "a_": 2, "b_": 3, "n" * 100: 5}
    assert found[("loss", ())] != found[("loss", ())]


def test_the_port_for_scrapers_serves_metrics_alone() -> None:
    async def run() -> tuple[list[int], str]:
        opened = await server.serve_metrics(0, HOST, IDENTITY, lambda: b"trainer_step 1\n")
        try:
            port = opened.number
            async with peers.client() as session:
                others = [(await get(session, port, path))[0] for path in ("/", "/status", "/healthz", "/report")]
                for method in ("POST", "PUT", "DELETE"):
                    async with session.request(method, f"http://{HOST}:{port}/metrics") as response:
                        others.append(response.status)
                async with session.post(f"http://{HOST}:{port}/report", data=b"{}") as response:
                    others.append(response.status)
                return others, (await get(session, port, "/metrics"))[1]
        finally:
            await opened.close()

    assert asyncio.run(run()) == ([404] * 4 + [405] * 3 + [404], "trainer_step 1\n")


def test_a_port_for_scrapers_that_is_taken_is_named() -> None:
    async def run() -> None:
        async with serving() as (_, port):
            await server.serve_metrics(port, HOST, IDENTITY, bytes)

    with pytest.raises(
        UserError,
        match=r"^port \d+ \(port for metrics of worker:1\) cannot be used: .*TRAINER_METRICS_PORT to another port$",
    ) as refused:
        asyncio.run(run())
    assert refused.value.code is Exit.USER


@pytest.mark.parametrize("text", ["x", "0", "65536", "-1", "4222 ", "\u0664222"])
def test_a_variable_that_is_no_port_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINER_METRICS_PORT", text)
    with pytest.raises(UserError, match=r"TRAINER_METRICS_PORT: '.*': must be a port, 1 to 65535"):
        preflight.metrics_port()
