"""Which variables a child of trainer's own gets, and which a program."""

from __future__ import annotations

import json
import os

import pytest

from trainer.job import environment
from trainer.job.cluster import Task, tasks_of
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.protocol.log_lines import FAILURE_MARK
from trainer.supervisor.children import child_environ


def made(**more: object) -> tuple[JobSpec, Task]:
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, **more})
    return spec, tasks_of(spec, lambda kind, index: f"{kind}-{index}.example:2222")[1]


def test_a_child_has_its_task_and_the_user_s_own_variables_take_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TF_ENABLE_ONEDNN_OPTS", raising=False)
    monkeypatch.setenv("MALLOC_TOP_PAD_", "5")
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    environ = child_environ.of_child(made()[1])
    assert json.loads(environ["TF_CONFIG"])["task"] == {"type": "worker", "index": 1}
    assert (environ["TF_ENABLE_ONEDNN_OPTS"], environ["MALLOC_TOP_PAD_"]) == ("1", "5")
    assert environ["KERAS_BACKEND"] == "tensorflow"
    assert environ[environment.PARENT] == str(os.getpid())


def test_the_cluster_s_traffic_goes_through_no_proxy() -> None:
    spec, task = made(program=["true"])
    hosts = "worker-0.example,worker-1.example"
    assert child_environ.of_child(task)["no_grpc_proxy"] == hosts
    assert child_environ.of_program(spec, task)["no_grpc_proxy"] == hosts


def test_a_program_does_not_get_what_is_the_supervisor_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAILURE_MARK, "mark")
    monkeypatch.setenv("HOME", "/home/x")
    environ = child_environ.of_program(*made(program=["true"], model_dir="/runs/j"))
    assert FAILURE_MARK not in environ
    assert (environ["HOME"], environ[environment.MODEL_DIR]) == ("/home/x", "/runs/j")


def test_a_program_has_its_task_and_the_addresses_of_tf_config() -> None:
    """For scripts with --ps_hosts --worker_hosts --job_name --task_index, and variables of the spec."""
    more = {"strategy": "parameter_server", "env": {"ME": "$(TRAINER_TASK_TYPE)-$(TRAINER_TASK_INDEX)"}}
    environ = child_environ.of_program(*made(program=["true"], tasks={"worker": 2, "ps": 1}, **more))
    names = ("TRAINER_TASK_TYPE", "TRAINER_TASK_INDEX", "TRAINER_PS_HOSTS", "TRAINER_WORKER_HOSTS", "ME")
    hosts = ["ps-0.example:2222", "worker-0.example:2222,worker-1.example:2222"]
    assert [environ[name] for name in names] == ["worker", "1", *hosts, "worker-1"]
    assert child_environ.of_program(*made(program=["true"]))["TRAINER_PS_HOSTS"] == ""


def test_the_spec_s_variables_of_a_task_type_come_last() -> None:
    spec, task = made(env={"A": "1", "B": "1"}, tasks={"worker": {"replicas": 2, "env": {"B": "2"}}})
    found = child_environ.settings(spec, task)
    assert (found["A"], found["B"]) == ("1", "2")
