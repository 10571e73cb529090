"""Warnings of a spec."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit.cli.commands import trainer
from trainer.job.load import build
from trainer.targets import spec_warnings
from trainer.targets.compose.target import Compose
from trainer.targets.kubernetes.target import Kubernetes

VALUE = "very-secret-value"


@pytest.mark.parametrize("command", [["check"], ["render", "compose"], ["render", "kubernetes"]])
def test_a_plain_value_with_the_name_of_a_secret_gets_a_warning(tmp_path: Path, command: list[str]) -> None:
    secret, plain = ["AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "WANDB_API_KEY", "hf_token"], ["KEYBOARD", "MONKEY"]
    raw = {"name": "j", "strategy": "multi_worker_mirrored"}
    settings = {"kubernetes": {"env": dict.fromkeys(secret + plain, VALUE)}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({**raw, **settings}))
    ended = trainer(*command, str(tmp_path / "job.yaml"))
    assert ended.returncode == 0
    assert [line.split(": ")[2] for line in ended.stderr.splitlines()] == [f"kubernetes.env.{name}" for name in secret]
    assert VALUE not in ended.stderr


def test_a_module_of_the_working_directory_gets_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "helper.py").touch()
    (tmp_path / "jobs").mkdir()
    (tmp_path / "jobs/mine.py").write_text("import helper\n")
    job = build({"name": "j", "strategy": "one_device", "workload": str(tmp_path / "jobs/mine.py")})
    assert spec_warnings.warnings(job) == []
    monkeypatch.chdir(tmp_path)
    (line,) = spec_warnings.warnings(job)
    assert line.startswith(f"workload: {tmp_path}/jobs/mine.py:1: import helper: is in the working directory")


def test_a_page_that_is_open_to_the_network_gets_a_warning() -> None:
    job = {"name": "j", "strategy": "one_device"}
    (line,) = spec_warnings.warnings(build({**job, "page": "network"}))
    assert line.startswith("page: network: without a password, all that reach the chief's control port can read")
    assert spec_warnings.warnings(build(job)) == spec_warnings.warnings(build({**job, "page": "none"})) == []


def test_plain_values_with_the_name_of_a_secret_are_warned_of_wherever_they_are() -> None:
    region = {"config_map": "cloud"}
    job = build({
        "name": "j", "strategy": "multi_worker_mirrored", "env": {"API_KEY": "1", "RATE": "2"},
        "kubernetes": {"env": {"MY_TOKEN": region, "PASSWORD": "x"}},
        "tasks": {"worker": {"env": {"A_SECRET": "1"}, "kubernetes": {"env": {"CREDENTIAL": "y"}}}},
    })  # fmt: skip
    assert [line.partition(": looks like a secret")[0] for line in spec_warnings.warnings(job)] == [
        "env.API_KEY", "tasks.worker.env.A_SECRET", "kubernetes.env.PASSWORD", "tasks.worker.kubernetes.env.CREDENTIAL",
    ]  # fmt: skip


def test_what_only_pods_have_is_a_warning_for_a_program_on_compose() -> None:
    raw = {"name": "j", "strategy": "multi_worker_mirrored", "program": ["python3", "train.py"], "code": []}
    pods = {"mounts": [{"name": "models", "mountPath": "/models"}], "labels": {"team": "growth"}}
    (line,) = Compose().warnings(build({**raw, "kubernetes": pods}))
    assert line.startswith("kubernetes.mounts: only pods have them")
    types = {"worker": {"kubernetes": {"env": {"REGION": {"field": "metadata.name"}}}}}
    (line,) = Compose().warnings(build({**raw, "tasks": types}))
    assert line.startswith("kubernetes.env: only pods have them")
    assert Compose().warnings(build({**raw, "kubernetes": {"labels": {"team": "growth"}}})) == []


def test_the_address_of_a_chat_in_the_spec_is_a_warning_without_the_address() -> None:
    raw = {"name": "j", "strategy": "one_device"}
    (warning,) = spec_warnings.warnings(
        build({**raw, "notify": {"webhook": "https://hooks.slack.com/services/T0/B0/x"}})
    )
    assert "notify.webhook_from" in warning
    assert "T0" not in warning
    assert spec_warnings.warnings(build({**raw, "notify": {"webhook": "http://alerts:8080"}})) == []


@pytest.mark.parametrize(
    ("target", "kept_out"),
    [
        (Compose(), ["notify.webhook_from: CHAT"]),  # trainer track has a network of its own
        (Kubernetes(), ["tracking.mlflow: http://mlflow:5000", "notify.webhook_from: CHAT"]),
    ],
)
def test_servers_that_the_network_keeps_out_are_warned_of(target: Compose | Kubernetes, kept_out: list[str]) -> None:
    told = {"tracking": {"mlflow": "http://mlflow:5000"}, "notify": {"webhook_from": "CHAT"}}
    raw = {"name": "j", "strategy": "one_device", "secrets": {"CHAT": {"secret": "s"}}, **told}
    found = target.warnings(build(raw))
    assert [line.split(": the job's network has no way out")[0] for line in found] == kept_out
    assert target.warnings(build({**raw, "env": {"HTTPS_PROXY": "http://proxy"}})) == []


def test_pods_that_may_connect_to_anything_reach_them() -> None:
    raw = {"name": "j", "strategy": "one_device", "tracking": {"mlflow": "http://mlflow"}}
    assert Kubernetes().warnings(build({**raw, "kubernetes": {"egress": True}})) == []


def test_a_secret_in_the_words_of_a_command_is_seen_by_others() -> None:
    spec = build(
        {
            "name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 1},
            "program": ["python", "x.py", "--token=$(HF_TOKEN)", "$(MODE)"], "secrets": {"HF_TOKEN": {}, "OTHER": {}},
        }
    )  # fmt: skip
    (line,) = [each for each in spec_warnings.warnings(spec) if "ps)" in each]
    assert line.startswith("program: $(HF_TOKEN): other users of the machine see the words of a command (ps)")


def test_a_login_over_plain_http_is_read_on_the_way() -> None:
    spec = build(
        {
            "name": "j", "strategy": "one_device", "workload": "mnist", "tasks": {"worker": 1},
            "tracking": {"mlflow": "http://mlflow.example:5000"}, "secrets": {"MLFLOW_TRACKING_TOKEN": {}},
            "notify": {"webhook": "http://hooks.slack.com/services/x"}, "env": {"PROXY": "http://me:pw@proxy.example:3128"},
        }
    )  # fmt: skip
    assert [each.partition(":")[0] for each in spec_warnings.warnings(spec) if "unencrypted; use https" in each] == [
        "tracking.mlflow",
        "notify.webhook",
        "env.PROXY",
    ]
    near = {"tracking": {"mlflow": "http://localhost:5000"}, "secrets": {"MLFLOW_TRACKING_TOKEN": {}}}
    ours = build({"name": "j", "strategy": "one_device", "workload": "mnist", "tasks": {"worker": 1}, **near})
    assert not [each for each in spec_warnings.warnings(ours) if "unencrypted" in each]
