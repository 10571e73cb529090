"""`trainer task` on addresses of the test's own: tasks that do not come, come late, are wrong or are replaced."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from tests.local.specs import KEY, KEYED, PACED, mirrored, parameter_server
from tests.local.tasks import TASK, Environments, environment, errors, run_tasks, until
from tests.tools.harness import Job, alive, processes
from trainer.job import load
from trainer.job.cluster import Task
from trainer.job.errors import Exit
from trainer.model_dir import compatibility, layout, result
from trainer.model_dir.files import write_json

SOON = {"start": 10, "rejoin": 10, "chief_lost": 30}
LATER = {"start": 60}
"""For tasks that come and are wrong, so that the job does not end before they come."""


@pytest.mark.slow
def test_a_task_that_never_comes_is_named_at_the_deadline_by_all(tmp_path: Path, environments: Environments) -> None:
    made = environments(mirrored(workers=3, deadlines=SOON), tmp_path)
    begun = time.monotonic()
    ended = run_tasks([made["worker:0"][1], made["worker:1"][1]])
    assert time.monotonic() - begun < 60, "and not at a longer deadline"
    for code, output in ended:
        assert code == Exit.MISSING, output
        (line,) = errors(output)
        assert "worker:2: has not reported" in line
        assert "refused" in line


@pytest.mark.slow
def test_a_chief_that_never_starts_is_named_by_the_others(tmp_path: Path, environments: Environments) -> None:
    made = environments(parameter_server(deadlines={**SOON, "start": 4}), tmp_path)
    ((code, output),) = run_tasks([made["worker:0"][1]])
    assert code == Exit.CHIEF_LOST
    (line,) = errors(output)
    assert "chief:0" in line
    assert "refused" in line


@pytest.mark.slow
def test_a_task_that_returns_after_the_job_is_complete_and_the_chief_gone_exits_with_0(
    tmp_path: Path, environments: Environments
) -> None:
    for steps, wanted in ((400, Exit.OK), (500, Exit.CHIEF_LOST)):  # the second asks for more than there is
        spec = parameter_server(steps=steps, deadlines=SOON)
        made = environments(spec, tmp_path)
        done = load.build(parameter_server())
        key = compatibility.key(done, done.tasks.counts(), None)
        write_json(
            layout.result(tmp_path),
            {"status": "succeeded", "compatibility_key": {**key, **result.steps_asked(done)}},
        )
        for code, output in run_tasks([made["worker:0"][1], made["ps:0"][1]]):
            assert code == wanted, output
            assert ("the job is complete" in output) == (wanted == Exit.OK)


@pytest.mark.slow
def test_an_evaluator_that_comes_back_when_the_chief_is_gone_scores_the_last_checkpoint(
    tmp_path: Path, environments: Environments
) -> None:
    spec = mirrored(steps=50, workers=1)
    with Job(tmp_path, spec) as job:
        assert job.wait() == 0, job.output
    made = environments({**spec, "tasks": {"worker": 1, "evaluator": 1}}, job.model_dir)
    ((code, output),) = run_tasks([made["evaluator:0"][1]])
    assert code == Exit.OK, output
    (scored,) = (json.loads(line) for line in (job.model_dir / "evaluation.jsonl").read_text().splitlines())
    assert scored["step"] == 50
    assert scored["accuracy"] == pytest.approx(job.result()["test_accuracy"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "reason"),
    # 192.0.2.0/24 is reserved for documentation (RFC 5737).
    [
        ("nowhere.invalid:2222", "nowhere.invalid does not resolve (DNS)"),
        ("192.0.2.1:2222", "192.0.2.1:3222"),
    ],
    ids=["name", "host"],
)
def test_a_wrong_address_is_named_with_its_reason(
    tmp_path: Path, environments: Environments, address: str, reason: str
) -> None:
    made = environments(mirrored(workers=2, deadlines={"start": 20}), tmp_path)
    worker, environ = made["worker:1"]
    cluster = {"worker": [worker.cluster["worker"][0], address]}
    environs = [environment(Task("worker", i, cluster), environ["TRAINER_JOB"]) for i in (0, 1)]
    code, output = run_tasks(environs)[0]
    assert code == Exit.MISMATCH, output
    assert any("worker:1" in line and reason in line for line in errors(output)), output


@pytest.mark.slow
def test_another_cluster_json_is_refused_at_once_and_the_job_ends(tmp_path: Path, environments: Environments) -> None:
    made = environments(mirrored(workers=2, deadlines=LATER), tmp_path)
    worker, environ = made["worker:1"]
    other = Task("worker", 1, {"worker": [*worker.cluster["worker"], "127.0.0.1:2222"]})
    (chief_code, chief_output), (code, output) = run_tasks(
        [made["worker:0"][1], environment(other, environ["TRAINER_JOB"])]
    )
    assert code == chief_code == Exit.MISMATCH
    for text in (output, chief_output):
        (line,) = errors(text)
        assert "worker:1 has a different cluster" in line


@pytest.mark.slow
def test_another_tensorflow_version_is_refused_with_both_versions(tmp_path: Path, environments: Environments) -> None:
    made = environments(mirrored(workers=2, deadlines=LATER), tmp_path)
    # What importlib.metadata reads, earlier on the path than the real one.
    info = tmp_path / "other" / "tensorflow_cpu-2.20.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.20.0\n")
    other = {**made["worker:1"][1], "PYTHONPATH": str(info.parent)}
    ended = run_tasks([made["worker:0"][1], other])
    for code, output in ended:
        assert code == Exit.MISMATCH, output
        (line,) = errors(output)
        assert "worker:1 has tensorflow 2.20.0, the chief 2.21.0" in line


@pytest.mark.slow
def test_another_workload_file_is_refused_with_its_name(tmp_path: Path, environments: Environments) -> None:
    made = environments(mirrored(workers=2, deadlines=LATER, workload="mine.py"), tmp_path / "run")
    commands = []
    for index, (_, environ) in enumerate(made.values()):
        folder = tmp_path / str(index)
        folder.mkdir()
        (folder / "mine.py").write_text(f"from trainer.workloads.digits import DATASET, model\n# {index}\n")
        commands.append((["env", f"--chdir={folder}", *TASK], environ))
    with processes(commands) as running:
        ended = [process.communicate(timeout=60)[0] for process in running]
    for process, output in zip(running, ended, strict=True):
        assert process.returncode == Exit.MISMATCH, output
        (line,) = errors(output)
        assert "worker:1 has a different workload file (mine.py) than the chief; give all tasks the same file" in line


@pytest.mark.parametrize(
    ("spec", "without", "why"),
    [
        (
            mirrored(workload=KEYED, secrets={"API_KEY": {"secret": "s"}}),
            "API_KEY",
            "secrets.API_KEY: the variable is not set in this task, or is empty",
        ),
        (
            {"strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, "program": ["sleep", "60"], "code": []},
            "PATH",
            "program: 'sleep': no such command in PATH",
        ),
    ],
    ids=["secret", "program"],
)
def test_a_task_that_cannot_start_ends_the_job_with_its_reason(
    tmp_path: Path, environments: Environments, spec: dict[str, Any], without: str, why: str
) -> None:
    """As on Kubernetes, where its pod would start again and again, and the chief wait for half an hour."""
    made = environments({"name": "j", "deadlines": {"start": 600}, **spec}, tmp_path)
    (_, chief), (_, other) = made.values()
    ended = run_tasks([{"API_KEY": KEY, **chief}, {**other, without: ""}])
    assert [code for code, _ in ended] == [Exit.USER, Exit.USER], ended
    (first,), (second,) = (errors(output) for _, output in ended)
    assert first.startswith(f"trainer: worker:1: {why}")
    assert second.startswith(f"trainer: {why}")


@pytest.mark.slow
def test_another_secret_is_refused_and_neither_is_printed(tmp_path: Path, environments: Environments) -> None:
    made = environments(mirrored(workers=2, deadlines={"start": 20}), tmp_path)
    (tmp_path / "secret").write_text("7d793037a0760186\n")
    (_, chief), (_, other) = made.values()
    ended = run_tasks(
        [
            {**chief, "TRAINER_SECRET_FILE": str(tmp_path / "secret")},
            {**other, "TRAINER_SECRET": "2cf24dba5fb0a30e"},
        ]
    )
    refused = "a report from 127.0.0.1 as worker:1 lacks this job's secret"
    wanted = [(Exit.MISSING, refused), (Exit.MISMATCH, "than its chief")]
    for (code, output), (expected, reported) in zip(ended, wanted, strict=True):
        assert code == expected, output
        (line,) = errors(output)
        assert reported in line
        assert not {"7d793037a0760186", "2cf24dba5fb0a30e"} & set(re.findall(r"\w+", output))


def test_a_port_in_use_is_named(tmp_path: Path, environments: Environments) -> None:
    made = environments(mirrored(workers=1), tmp_path)
    task, environ = made["worker:0"]
    assert task.address is not None
    for port in (task.address[1], task.control_address("worker", 0)[1]):
        with socket.create_server(("127.0.0.1", port)):
            ((code, output),) = run_tasks([environ])
        assert code == Exit.USER, output
        (line,) = errors(output)
        assert f"port {port} " in line
        assert "in use" in line


@pytest.mark.slow
def test_a_late_task_is_notified_by_a_chief_that_was_refused(tmp_path: Path, environments: Environments) -> None:
    (tmp_path / "file").write_text("")
    made = environments(mirrored(workers=2), tmp_path / "file" / "run")
    with processes([(TASK, made["worker:0"][1])]) as (chief,):
        assert chief.stdout is not None
        said = next(line for line in chief.stdout if line.startswith("trainer: "))
        assert "cannot be written" in said
        ((code, output),) = run_tasks([made["worker:1"][1]])
        assert (code, errors(output)) == (Exit.USER, [said.strip()])
        assert chief.wait(10) == Exit.USER


@pytest.mark.parametrize(
    ("tf_config", "said"),
    [
        ("{", "is not JSON"),
        ({"task": {"type": "worker", "index": "0"}}, "must be a whole number, not text"),
        ({"task": {"type": "worker", "index": 7}}, "the number of worker tasks is 1"),
        ({"cluster": {"evaluator": ["a:1"], "worker": ["b:1"]}}, "the evaluator is never part of the cluster"),
    ],
    ids=["not-json", "index-as-text", "index-out-of-range", "evaluator-inside"],
)
def test_a_broken_tf_config_is_reported(tmp_path: Path, environments: Environments, tf_config: Any, said: str) -> None:
    _, environ = environments(mirrored(workers=1), tmp_path)["worker:0"]
    if isinstance(tf_config, dict):
        tf_config = json.dumps({**json.loads(environ["TF_CONFIG"]), **tf_config})
    ((code, output),) = run_tasks([{**environ, "TF_CONFIG": tf_config}])
    assert code == Exit.USER
    assert said in output
    assert all(line.startswith("trainer: ") or not line for line in output.splitlines()), output


@pytest.mark.slow
def test_a_chief_that_was_replaced_while_it_could_not_run_writes_nothing_more_and_ends(
    tmp_path: Path, environments: Environments
) -> None:
    """As after the loss of a node that comes back: both chiefs have the same model_dir."""
    spec = mirrored(steps=100_000, workers=1, workload=PACED, train={"checkpoint_steps": 100})
    both = [environments(spec, tmp_path)["worker:0"] for _ in range(2)]
    commands = [(TASK, {**environ, "TRAINER_RUN": "the same"}) for _, environ in both]
    first, second = ("http://{}:{}/status".format(*task.control_address("worker", 0)) for task, _ in both)
    with processes(commands[:1]) as (old,):
        pids = [old.pid, until(first, "last_checkpoint")["tasks"]["worker:0"]["child_pid"]]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        written = layout.state(tmp_path).read_text()
        with processes(commands[1:]) as (new,):
            step = until(second, "step")["step"]
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            output, _ = old.communicate(timeout=30)
            assert old.returncode == Exit.REPLACED, output
            assert "another chief has taken this one's place" in output
            assert not alive(pids[1])
            later = until(second, "step", step + 300)
            assert later["generation"] == 2, "the new one was not disturbed"
            assert json.loads(layout.state(tmp_path).read_text())["incarnation"] not in written
            new.terminate()
            output, _ = new.communicate(timeout=60)
            assert new.returncode == Exit.STOPPED, output
