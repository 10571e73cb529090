"""`trainer local` with stand-ins for its tasks: real processes that run, fail and misbehave as scripted."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.targets.local.stand_in import fifo, make, stand_in, write_result
from trainer.job import code
from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit, UserError
from trainer.job.load import build, load_environment
from trainer.job.spec import JobSpec
from trainer.job.tf_config import from_environment
from trainer.targets.local import processes
from trainer.targets.local import run as local


def test_a_program_s_tasks_get_the_digest_of_its_code(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    """By it a job that is complete is told from one whose code has changed since."""
    (folder := Path("code")).mkdir()
    program = {"name": "p", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, "code": [str(folder)]}
    say = 'say("digest " + os.environ["TRAINER_CODE_SHA256"]); sys.exit(2)'

    def digest() -> str:
        local.run(build({**program, "program": ["python", "train.py"]}), command=stand_in(worker_0=say, worker_1=say))
        found = set(re.findall(r"digest (\S+)", capfd.readouterr().out))
        assert len(found) == 1, "the same in all tasks"
        return str(found.pop())

    (folder / "train.py").write_text("x = 1")
    first = digest()
    assert digest() == first
    (folder / "train.py").write_text("x = 2")
    second = digest()
    assert second != first
    with (folder / "weights").open("wb") as file:
        file.truncate(code.LARGEST + 1)
    assert digest() != digest(), "too much to read: never taken for complete"


def test_a_program_is_looked_for_where_its_task_will_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folders that `env` adds to PATH, and beside `python`, whose environment may have the command."""
    monkeypatch.chdir(tmp_path)
    for name in ("bin/python", "bin/beside", "more/added"):
        (path := tmp_path / name).parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    program = {"name": "p", "strategy": "multi_worker_mirrored", "code": [], "python": "bin/python"}
    env = {"MORE": str(tmp_path / "more"), "PATH": "$(PATH):$(MORE)"}
    for word in ("beside", "added"):
        assert local.run(build({**program, "program": [word], "env": env}), command=stand_in()) == Exit.OK
    with pytest.raises(UserError, match=r"program: 'absent': no such command in PATH \(.*bin:.*more\)"):
        local.run(build({**program, "program": ["absent"], "env": env}), command=stand_in())


def test_a_job_of_tasks_that_succeed(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    write_result()
    code = local.run(spec, command=stand_in(worker_1='say("hello"); sys.exit(0)'))
    out, err = capfd.readouterr()
    assert code == Exit.OK
    assert "worker:1 | hello\n" in out
    assert err == ""
    reported = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in out.splitlines() if "  " in line}
    assert (reported["status"], reported["steps"], reported["test_accuracy"]) == ("succeeded", "1,000", "0.9712")
    assert reported["result"] == "runs/j/.trainer/result.json"


@pytest.mark.parametrize("code", [Exit.USER, Exit.MISSING, Exit.BUG, 3])
def test_a_permanent_failure_ends_the_job_with_its_code(
    spec: JobSpec, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(local, "FAILED_SECONDS", 0.0)
    fifo("ready")
    failing = f"open('ready').read(); report('no such thing'); sys.exit({int(code)})"
    chief = "leave_at_sigterm(143); open('ready', 'w').close(); forever()"
    assert local.run(spec, command=stand_in(worker_0=failing, chief_0=chief)) == code
    out, err = capfd.readouterr()
    assert "chief:0 | SIGTERM seen\n" in out
    assert "restarting it" not in out
    assert "worker:0 | trainer: no such thing\n" in err
    last = err.splitlines()[-1]
    assert last.startswith(f"trainer: j failed: worker:0 ended with exit code {int(code)}: no such thing; ")
    assert re.search("; TensorFlow's output: runs/j/.trainer/logs; what to try: [^ ]*trainer debug runs/j$", last)
    assert "(" not in last, "the task has explained its failure"


def test_the_last_line_of_a_killed_task_has_the_chiefs_reason_and_no_reason_is_endless(
    spec: JobSpec, capfd: pytest.CaptureFixture[str]
) -> None:
    long = "the cluster cannot form: " + 2000 * "x"
    assert local.run(spec, command=stand_in(chief_0=f"report({long!r}); sys.exit(10)")) == 10
    last = capfd.readouterr().err.splitlines()[-1]
    assert "chief:0 ended with exit code 10: the cluster cannot form: xxx" in last
    assert len(last) < 700
    assert last.endswith("trainer debug runs/j")


def test_an_exit_code_that_no_line_explains_comes_with_its_meaning(
    spec: JobSpec, capfd: pytest.CaptureFixture[str]
) -> None:
    assert local.run(spec, command=stand_in(chief_0="sys.exit(12)")) == Exit.DEVICES
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith(f"trainer: j failed: chief:0 ended with exit code 12 ({Exit.DEVICES.meaning}); ")


def test_a_failure_that_each_task_reports_is_printed_once(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    report = "report('worker:1: a'); report('worker:1: b'); sys.exit(2)"
    own = "report('no memory'); " + report
    assert local.run(spec, command=stand_in(chief_0=report, worker_0=report, worker_1=report, ps_0=own)) == 2
    *lines, last = (line.partition(" | ")[2] or line for line in capfd.readouterr().err.splitlines())
    assert sorted(lines) == ["trainer: no memory", "trainer: worker:1: a", "trainer: worker:1: b"]
    assert last.startswith("trainer: j failed: worker:1 ended with exit code 2: a; worker:1: b; TensorFlow's output: ")


def test_a_program_s_lines_are_no_failures_of_its_task(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    """A logger of the user may be named trainer. A line may be unfinished when the task reports its failure."""
    fifo("logged")
    logs = "print('trainer: worker:0: epoch 1', 'trainer: worker:0: epoch 1', sep='\\n', file=sys.stderr)"
    tasks = {
        "chief_0": f"{logs}; open('logged', 'w').close(); report('worker:1: no rows'); sys.exit(18)",
        "worker_0": "open('logged').read(); sys.exit(18)",
        "worker_1": f"{logs}; sys.stderr.write('50%'); report('worker:1: no rows'); sys.exit(18)",
    }
    assert local.run(spec, command=stand_in(**tasks)) == 18
    *lines, last = capfd.readouterr().err.splitlines()
    assert lines.count("chief:0 | trainer: worker:0: epoch 1") == 2
    assert lines.count("worker:1 | trainer: worker:0: epoch 1") == 2
    assert "worker:1 | 50%" in lines
    assert sum(line.endswith(" | trainer: worker:1: no rows") for line in lines) == 1
    assert last.startswith("trainer: j failed: worker:1 ended with exit code 18: no rows; ")


def test_a_verdict_without_a_task_names_the_chief(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    fifo("over")
    tasks = {
        "worker_0": "os.open('over', os.O_WRONLY); sys.exit(14)",
        "chief_0": "open('over').read(); report('4 generations without a step'); sys.exit(14)",
    }
    assert local.run(spec, command=stand_in(**tasks)) == 14
    assert (
        "trainer: j failed: chief:0 ended with exit code 14: 4 generations without a step; "
        in capfd.readouterr().err.splitlines()[-1]
    )


def test_the_first_failure_is_the_one_that_the_chief_names_whichever_task_ends_first(
    spec: JobSpec, capfd: pytest.CaptureFixture[str]
) -> None:
    fifo("first")
    fifo("second")
    tasks = {
        "ps_0": "open('first', 'w').close(); sys.exit(2)",
        "worker_0": "open('first').read(); open('second', 'w').close(); report('worker:0: x'); sys.exit(2)",
        "chief_0": "open('second').read(); report('worker:0: x'); sys.exit(2)",
    }
    assert local.run(spec, command=stand_in(**tasks)) == 2
    assert "trainer: j failed: worker:0 ended with exit code 2: x; " in capfd.readouterr().err.splitlines()[-1]


def test_the_code_of_the_first_failure_counts(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "FAILED_SECONDS", 0.0)
    fifo("ready")
    tasks = {"worker_0": "open('ready').read(); sys.exit(13)",
             "chief_0": "leave_at_sigterm(12); open('ready', 'w').close(); forever()"}  # fmt: skip
    assert local.run(spec, command=stand_in(**tasks)) == 13


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_evaluator_that_fails_does_not_end_the_job_nor_change_its_code(
    spec: JobSpec, capfd: pytest.CaptureFixture[str], when: str
) -> None:
    fifo("over")
    first, second = "os.open('over', os.O_WRONLY)", "open('over').read()"
    chief, evaluator = (first, second) if when == "after" else (second, first)
    write_result("evaluator:0: too slow")
    tasks = {"chief_0": chief, "evaluator_0": f"{evaluator}; sys.exit(17)"}
    assert local.run(make(tasks={"evaluator": 1}), command=stand_in(**tasks)) == Exit.OK
    out, _ = capfd.readouterr()
    assert "local | evaluator:0 ended with exit code 17 (the last checkpoint was not scored" in out
    assert ["warning", "evaluator:0:", "too", "slow"] in [line.split() for line in out.splitlines()]


def test_any_output_becomes_lines(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    long = processes._LINE_LIMIT + 5
    chief = rf"os.write(1, b'one\ntw\xffo\r\n\n'); print('x' * {long}); sys.stdout.write('no end')"
    assert local.run(spec, command=stand_in(chief_0=chief)) == Exit.OK
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("chief:0 | ")]
    lines = [line.removeprefix("chief:0 | ") for line in lines]
    assert lines[:3] == ["one", "tw\N{REPLACEMENT CHARACTER}o", ""]
    assert lines[-1] == "no end"
    assert sum(line.count("x") for line in lines) == long


MIRRORED = {"name": "j", "strategy": "multi_worker_mirrored"}


@pytest.mark.parametrize(
    "raw",
    [
        {**MIRRORED, "tasks": {"chief": 1, "worker": {"replicas": 2, "cpu": 1.5, "memory": "2Gi"}, "evaluator": 1}},
        {**MIRRORED, "workload": "wörk flow.py", "dataset": "my.npz", "dataset_sha256": "0" * 64, "model_dir": "a b"},
        {**MIRRORED, "train": {"epochs": 3, "global_batch_size": 10, "learning_rate": 1e-7}, "warm_standby": False},
        {"name": "j", "strategy": "parameter_server", "tasks": {"ps": 1}, "deadlines": {"stop": 1}},
    ],
)
def test_every_task_finds_its_job_and_its_place(monkeypatch: pytest.MonkeyPatch, raw: dict[str, Any]) -> None:
    monkeypatch.setenv("TRAINER_SET", "train.steps=7")
    monkeypatch.setenv("TRAINER_CONTROL_PORT", "1")
    spec = build(raw)
    taken = {task.name: 20_000 + i for i, task in enumerate(tasks_of(spec))}
    for task in tasks_of(spec, lambda task_type, index: f"127.0.0.1:{taken[f'{task_type}:{index}']}"):
        environ = local.environment_of(spec, task, taken)
        assert load_environment(environ) == spec
        assert from_environment(spec, environ) == task
        assert environ["TRAINER_PARENT"] == str(os.getpid())
        assert environ["PATH"] == os.environ["PATH"]
        control = str(taken[task.name] + 1000) if task.type == "evaluator" else None
        assert environ.get("TRAINER_CONTROL_PORT") == control


@pytest.mark.parametrize(
    ("raw", "shares"),
    [
        ({**MIRRORED, "tasks": {"chief": 1, "worker": 2}}, {"chief:0": "2", "worker:0": "2", "worker:1": "2"}),
        ({**MIRRORED, "tasks": {"worker": 9}}, {f"worker:{i}": "1" for i in range(9)}),
        ({**MIRRORED, "tasks": {"worker": {"replicas": 2, "cpu": 3}}}, {"worker:0": None, "worker:1": None}),
        (
            {"name": "j", "strategy": "parameter_server", "tasks": {"ps": 1, "worker": 3}},
            {"chief:0": "7", "worker:0": "2", "worker:1": "2", "worker:2": "2", "ps:0": "2"},
        ),
    ],
)
def test_tasks_that_compute_share_the_cores(
    monkeypatch: pytest.MonkeyPatch, raw: dict[str, Any], shares: dict[str, str | None]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(7)))
    monkeypatch.setenv("TRAINER_CPUS", "64")
    spec = build(raw)
    environs = {task.name: local.environment_of(spec, task, {}) for task in tasks_of(spec)}
    assert {name: environ.get("TRAINER_CPUS") for name, environ in environs.items()} == shares


def test_the_given_ports_are_used(spec: JobSpec, free_ports: Callable[[int], int]) -> None:
    base = free_ports(4)
    write = "open(name, 'w').write(os.environ['TF_CONFIG'])"
    tasks = {"chief_0": write, "worker_0": write, "worker_1": write, "ps_0": write}
    assert local.run(spec, base_port=base, command=stand_in(**tasks)) == Exit.OK
    cluster = json.loads(Path("ps:0").read_text())["cluster"]
    assert cluster == {
        "chief": [f"127.0.0.1:{base}"],
        "worker": [f"127.0.0.1:{base + 1}", f"127.0.0.1:{base + 2}"],
        "ps": [f"127.0.0.1:{base + 3}"],
    }


def test_the_login_of_the_tracker_is_no_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"MLFLOW_TRACKING_TOKEN": "t", "HTTPS_PROXY": "p", "API_KEY": "k"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    raw = {"name": "j", "strategy": "one_device", "secrets": {name: {} for name in values}}
    for tracking, login in ({}, "t"), ({"tracking": {"mlflow": "http://mlflow"}}, None):
        spec = build({**raw, **tracking})
        environ = local.environment_of(spec, tasks_of(spec)[0], {})
        assert [environ.get(name) for name in values] == [login, "p", "k"]
    assert {name: local._environment_of_tracker(spec)[name] for name in ("MLFLOW_TRACKING_TOKEN", "HTTPS_PROXY")} == {
        "MLFLOW_TRACKING_TOKEN": "t", "HTTPS_PROXY": "p",
    }  # fmt: skip
