"""The values of secrets, which come from this machine."""

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
from trainer.targets import machine
from trainer.targets.compose import render as compose
from trainer.targets.kubernetes import render as kubernetes

VALUE = "very-secret-value"


def spec(**secrets: Any) -> JobSpec:
    return build({"name": "j", "strategy": "multi_worker_mirrored", "secrets": secrets})


def test_they_come_from_a_file_or_from_our_environment(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{VALUE}\n")
    job = spec(A={}, B={"file": str(tmp_path / "token"), "secret": "s"})
    assert machine.secret_values(job, {"A": "x y", "B": "not this", "C": "z"}) == {"A": "x y", "B": VALUE}


def test_all_that_are_missing_are_named(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")
    (tmp_path / "image").write_bytes(b"\xff\xfe")
    files = {name: {"file": str(tmp_path / name)} for name in ("empty", "image", "nowhere")}
    with pytest.raises(UserError) as caught:
        machine.secret_values(spec(A={}, B={}, **files), {"B": ""})
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
    assert machine.secret_values(load_file(tmp_path / "job.yaml"), {}) == {"A": VALUE}


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
    assert set(machine.secret_values(job).values()) == {VALUE}
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


def test_local_starts_nothing_without_them(tmp_path: Path) -> None:
    raw = {"name": "j", "strategy": "multi_worker_mirrored", "workload": "digits", "secrets": {"NOT_THERE": {}}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump({**raw, "model_dir": str(tmp_path / "run")}))
    ended = trainer("local", str(tmp_path / "job.yaml"), "--plain")
    assert (ended.returncode, ended.stdout) == (Exit.USER, "")
    assert ended.stderr.startswith("trainer: secrets.NOT_THERE: the variable NOT_THERE is not set here")
    assert not (tmp_path / "run").exists()
