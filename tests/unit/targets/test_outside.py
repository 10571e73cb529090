"""Values that come from outside the spec."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.cli.commands import trainer
from trainer.job.errors import Exit, UserError
from trainer.job.load import build, load_file
from trainer.job.spec import JobSpec
from trainer.targets import outside
from trainer.targets.compose import render as compose
from trainer.targets.compose.target import Compose
from trainer.targets.kubernetes import render as kubernetes
from trainer.targets.kubernetes.target import Kubernetes

VALUE = "very-secret-value"


def spec(**secrets: Any) -> JobSpec:
    return build({"name": "j", "strategy": "multi_worker_mirrored", "secrets": secrets})


def test_they_come_from_a_file_or_from_our_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{VALUE}\n")
    job = spec(A={}, B={"file": str(tmp_path / "token"), "secret": "s"})
    assert outside.values(job, {"A": "x y", "B": "not this", "C": "z"}) == {"A": "x y", "B": VALUE}


def test_all_that_are_missing_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "image").write_bytes(b"\xff\xfe")
    files = {name: {"file": str(tmp_path / name)} for name in ("empty", "image", "nowhere")}
    with pytest.raises(UserError) as caught:
        outside.values(spec(A={}, B={}, **files), {"B": ""})
    a, b, *rest = caught.value.problems
    assert a.startswith("secrets.A: the variable A is not set here, or is empty; export it, or")
    assert b.startswith("secrets.B: the variable B is not set here")
    assert [line.partition(f"{tmp_path}/")[2] for line in rest] == [
        "empty': is empty",
        "image': cannot be read: is no text",
        "nowhere': cannot be read: No such file or directory",
    ]


def test_a_file_is_relative_to_the_spec(tmp_path: Path) -> None:
    raw = {"name": "j", "strategy": "multi_worker_mirrored", "secrets": {"A": {"file": "sub/token"}}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(raw))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/token").write_text(VALUE)
    assert outside.values(load_file(tmp_path / "job.yaml"), {}) == {"A": VALUE}


@pytest.mark.parametrize(
    ("secrets", "line"),
    [
        ({"TF_CONFIG": {}}, "secrets.TF_CONFIG: 'TF_CONFIG': trainer sets this variable itself"),
        ({"TRAINER_X": {}}, "secrets.TRAINER_X: 'TRAINER_X': trainer sets this variable itself"),
        ({"A": {"key": "k"}}, "secrets.A.key: 'k': needs the name of the Secret that has this key; add secret: NAME"),
        ({"A": {"value": "x"}}, "secrets.A.value: "),
    ],
)
def test_what_cannot_be_is_refused(secrets: Any, line: str) -> None:
    with pytest.raises(UserError, match=re.escape(line)):
        spec(**secrets)


def test_a_variable_has_one_value() -> None:
    with pytest.raises(UserError, match=r"kubernetes\.env\.A: 'A': is given under secrets too"):
        build({**spec(A={}).model_dump(exclude_defaults=True), "kubernetes": {"env": {"A": "x"}}})


def test_no_text_holds_a_value(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("A", VALUE)
    (tmp_path / "token").write_text(VALUE)
    job = spec(A={"secret": "mine"}, B={"secret": "mine", "key": "k", "file": str(tmp_path / "token")})
    assert set(outside.values(job).values()) == {VALUE}
    file, manifests = compose.render({"": job}, "x"), kubernetes.render(job, "x")
    assert VALUE not in file + manifests
    services = yaml.safe_load(file)["services"]
    assert services["j-worker-0"]["environment"]["A"] is None
    assert "A" not in {**services["j"]["environment"], **services["j-report-secret"]["environment"]}
    (pod,) = (m["spec"]["template"]["spec"] for m in yaml.safe_load_all(manifests) if m["kind"] == "Job")
    given = {each["name"]: each.get("valueFrom") for each in pod["containers"][0]["env"]}
    assert given["A"] == {"secretKeyRef": {"name": "mine", "key": "A"}}
    assert given["B"] == {"secretKeyRef": {"name": "mine", "key": "k"}}


def test_kubernetes_needs_the_name_of_a_secret() -> None:
    with pytest.raises(UserError, match=r"secrets\.A: names no Secret; on Kubernetes"):
        kubernetes.render(spec(A={}), "x")


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
    assert outside.warnings(job) == []
    monkeypatch.chdir(tmp_path)
    (line,) = outside.warnings(job)
    assert line.startswith(f"workload: {tmp_path}/jobs/mine.py:1: import helper: is in the working directory")


def test_a_page_that_is_open_to_the_network_gets_a_warning() -> None:
    job = {"name": "j", "strategy": "one_device"}
    (line,) = outside.warnings(build({**job, "page": "network"}))
    assert line.startswith("page: network: without a password, all that reach the chief's control port can read")
    assert outside.warnings(build(job)) == outside.warnings(build({**job, "page": "none"})) == []


def test_local_starts_nothing_without_them(tmp_path: Path) -> None:
    raw = {"name": "j", "strategy": "multi_worker_mirrored", "workload": "digits", "secrets": {"NOT_THERE": {}}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({**raw, "model_dir": str(tmp_path / "run")}))
    ended = trainer("local", str(tmp_path / "job.yaml"), "--plain")
    assert (ended.returncode, ended.stdout) == (Exit.USER, "")
    assert ended.stderr.startswith("trainer: secrets.NOT_THERE: the variable NOT_THERE is not set here")
    assert not (tmp_path / "run").exists()


def test_plain_values_with_the_name_of_a_secret_are_warned_of_wherever_they_are() -> None:
    region = {"config_map": "cloud"}
    job = build({
        "name": "j", "strategy": "multi_worker_mirrored", "env": {"API_KEY": "1", "RATE": "2"},
        "kubernetes": {"env": {"MY_TOKEN": region, "PASSWORD": "x"}},
        "tasks": {"worker": {"env": {"A_SECRET": "1"}, "kubernetes": {"env": {"CREDENTIAL": "y"}}}},
    })  # fmt: skip
    assert [line.partition(": looks like a secret")[0] for line in outside.warnings(job)] == [
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
    (warning,) = outside.warnings(build({**raw, "notify": {"webhook": "https://hooks.slack.com/services/T0/B0/x"}}))
    assert "notify.webhook_from" in warning
    assert "T0" not in warning
    assert outside.warnings(build({**raw, "notify": {"webhook": "http://alerts:8080"}})) == []


@pytest.mark.parametrize("target", [Compose(), Kubernetes()])
def test_servers_that_the_network_keeps_out_are_warned_of(target: Compose | Kubernetes) -> None:
    told = {"tracking": {"mlflow": "http://mlflow:5000"}, "notify": {"webhook_from": "CHAT"}}
    raw = {"name": "j", "strategy": "one_device", "secrets": {"CHAT": {"secret": "s"}}, **told}
    found = target.warnings(build(raw))
    assert [line.split(": the job's network has no way out")[0] for line in found] == [
        "tracking.mlflow: http://mlflow:5000", "notify.webhook_from: CHAT",
    ]  # fmt: skip
    assert target.warnings(build({**raw, "env": {"HTTPS_PROXY": "http://proxy"}})) == []


def test_pods_that_may_connect_to_anything_reach_them() -> None:
    raw = {"name": "j", "strategy": "one_device", "tracking": {"mlflow": "http://mlflow"}}
    assert Kubernetes().warnings(build({**raw, "kubernetes": {"egress": True}})) == []
