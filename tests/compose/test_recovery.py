"""Jobs that are disturbed, on a real container engine: each task type killed, cut off, frozen, out of memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.compose.project import CLIENT, Project
from tests.local import specs

DEADLINES = {"task_lost": 5}
STEPS = 1500


def test_each_task_type_may_be_killed_under_parameter_server(tmp_path: Path) -> None:
    tasks = {"worker": 4, "ps": 2, "evaluator": 1}
    spec = specs.parameter_server(steps=4000, tasks=tasks, deadlines=DEADLINES, workload=specs.PACED)
    with Project(tmp_path, {**spec, "name": "ps-kills"}) as project:
        generation = 1
        for task in ("worker:3", "evaluator:0", "ps:1", "chief:0"):
            status = project.until(
                "a checkpoint", lambda s: s["last_checkpoint"] and s["figures"].get("loss") is not None
            )
            seen = [each["text"] for each in status["events"]]
            assert status["generation"] == generation, (task, seen, project.output[-3000:])
            project.kill(task)
            if task in ("ps:1", "chief:0"):
                generation = project.until_formed_again(generation)["generation"]
            else:
                project.until_step(status["step"] + 200)
        assert project.wait() == 0, project.output
        result = project.result()
        assert set(project.exit_codes().values()) == {0}
        scored = project.file("evaluation.jsonl")
    assert (result["status"], result["steps"], result["generations"]) == ("succeeded", 4000, 3)
    assert all("workers=4 ps=2 replicas_in_sync=1" in line for line in result["tasks"].values())
    assert '"step": 4000' in scored


@pytest.fixture
def mirrored(tmp_path: Path) -> Any:
    spec = specs.mirrored(steps=STEPS, deadlines={**DEADLINES, "stop": 8}, train={"checkpoint_steps": 50})
    with Project(tmp_path, {**spec, "name": "mirrored", "workload": specs.PACED}) as project:
        project.until_step(100)
        yield project


def succeeded(project: Project, generations: int) -> None:
    assert project.wait() == 0, project.output
    result = project.result()
    assert (result["status"], result["steps"], result["generations"]) == ("succeeded", STEPS, generations)
    assert all("workers=2 ps=0 replicas_in_sync=2" in line for line in result["tasks"].values())


def test_chief_and_worker_may_be_killed_under_multi_worker_mirrored(mirrored: Project) -> None:
    for generation, task in enumerate(("worker:1", "worker:0"), 1):
        mirrored.kill(task)
        mirrored.until_formed_again(generation)
    succeeded(mirrored, 3)


def test_stop_checkpoints_in_time_and_up_resumes(mirrored: Project) -> None:
    mirrored.compose("stop")
    assert mirrored.exit_codes() == {"worker:0": 143, "worker:1": 143}, mirrored.output
    assert "the same command resumes" in mirrored.output
    mirrored.wait()
    step = max(int(line.rpartition("step ")[2].split()[0]) for line in mirrored.lines if "checkpoint of step" in line)
    mirrored.up()
    succeeded(mirrored, 2)
    assert f"resume_step={step}" in mirrored.output


def test_a_worker_that_is_cut_off_comes_back(mirrored: Project) -> None:
    network = CLIENT.networks.get("mirrored_mirrored")
    worker = mirrored.container("worker:1")
    aliases = worker.attrs["NetworkSettings"]["Networks"][network.name]["Aliases"]
    network.disconnect(worker)
    mirrored.until("the loss was noticed", lambda s: any("worker:1 lost (silent" in e["text"] for e in s["events"]))
    network.connect(worker, aliases=aliases)
    mirrored.until_formed_again(1)
    succeeded(mirrored, 2)


def test_a_paused_container_is_noticed(mirrored: Project) -> None:
    worker = mirrored.container("worker:1")
    worker.pause()
    mirrored.until("the loss was noticed", lambda s: any("worker:1 lost (silent" in e["text"] for e in s["events"]))
    worker.unpause()
    mirrored.until_formed_again(1)
    succeeded(mirrored, 2)


def test_out_of_memory_is_named_with_its_limit(tmp_path: Path) -> None:
    spec = specs.mirrored(max_restarts=1)
    memory = {"services": {"oom-worker-1": {"deploy": {"resources": {"limits": {"memory": "150M"}}}}}}
    with Project(tmp_path, {**spec, "name": "oom"}, memory) as project:
        assert project.wait() != 0
        assert project.exit_codes() == {"worker:0": 14, "worker:1": 14}, project.output
    assert "out of memory at its limit of 150 MiB, killed by the kernel; raise tasks.worker.memory" in project.output
