"""Jobs before they are submitted, and the names that trainer has."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trainer
from tests.tools.documents import PAGES
from tests.unit.cli import fake
from trainer.api import places
from trainer.api.job import read, render
from trainer.job.errors import Exit
from trainer.job.load import load_file
from trainer.targets import base

ROOT = Path(__file__).parents[3]
PS = str(ROOT / "examples/digits-ps.yaml")


@pytest.fixture(autouse=True)
def target(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target `fake`, beside those of trainer."""
    monkeypatch.delenv("TRAINER_SET", raising=False)
    entry = base.Entry("tests.unit.cli.fake:Fake", options=frozenset({"namespace", "dry_run", "task"}))
    monkeypatch.setitem(base.TARGETS, "fake", entry)
    monkeypatch.setattr(fake, "ASKED", [])


def test_every_name_of_the_package_has_a_type() -> None:
    """In the stub file, which type checkers and editors read in place of __init__.py."""
    stub = ast.parse((ROOT / "trainer/__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    typed = {alias.asname for node in imports for alias in node.names if alias.asname}
    assert typed == {*trainer._LAZY, "keras"}  # type: ignore[attr-defined]
    assert typed <= set(dir(trainer))
    assert all(getattr(trainer, name) for name in typed)


def test_every_name_is_in_the_reference() -> None:
    shown = re.findall(r"^::: trainer\.(\w+)$", PAGES["docs/api.md"], re.MULTILINE)
    assert {*shown, "keras"} == {*trainer._LAZY, "keras"}  # type: ignore[attr-defined]


def test_the_default_target_is_the_first() -> None:
    for function in (trainer.Job.submit, trainer.Job.render, trainer.Job.dry_run, trainer.jobs):
        assert inspect.signature(function).parameters["target"].default == places.default()


@pytest.mark.parametrize("path", [None, 7, ["job.yaml"]])
def test_what_is_no_path_is_one_line(path: Any) -> None:
    with pytest.raises(trainer.UserError) as caught:
        trainer.load(path)
    assert str(caught.value) == f"{path!r}: must be the path of a job spec, as in trainer.load('job.yaml')"


def test_a_job_is_read_with_its_changes() -> None:
    job = trainer.load(PS, set={"train.steps": 617, "name": "other"})
    assert job.spec == load_file(PS, ["train.steps=617", "name=other"])
    assert (job.name, repr(job)) == ("other", f"<Job other of {PS}>")
    assert trainer.load(PS, set=["train.steps=617", "name=other"]) == job
    assert trainer.load(PS, set="train.steps=617") == trainer.load(PS, set=["train.steps=617"])

    tasks = {"chief:0": 1, "worker:0": 2, "worker:1": 2, "ps:0": 1}
    assert list(job.tf_config) == list(tasks)
    for name, config in job.tf_config.items():
        task_type, index = name.split(":")
        assert config["task"] == {"type": task_type, "index": int(index)}
        assert {kind: len(addresses) for kind, addresses in config["cluster"].items()} == {  # type: ignore[attr-defined]
            "chief": 1,
            "worker": 2,
            "ps": 1,
        }


@pytest.mark.parametrize(
    "value", [3, 0.1, 1e-5, True, None, "adam", "1e-5", "a: b\n'c' # d", [1, "two"], {"a": {"b": 1e-7}}, ""]
)
def test_a_value_arrives_as_it_was_given(value: object) -> None:
    found = read(PS, {"settings.x": value}).spec.settings["x"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(("value", "plain"), [(np.int64(617), 617), (np.float32(0.5), 0.5), (np.bool_(True), True)])
def test_numbers_of_numpy_are_numbers(value: object, plain: object) -> None:
    found = read(PS, {"settings.x": value}).spec.settings["x"]
    assert (found, type(found)) == (plain, type(plain))


def test_what_yaml_has_not_is_refused() -> None:
    with pytest.raises(
        trainer.UserError, match=r"^set: settings.x: .*: must be a number, a text, a list or a mapping$"
    ):
        read(PS, {"settings.x": object()})


def test_a_mistake_in_the_workload_is_found_by_load(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("{name: j, strategy: one_device, workload: m.py}")
    (tmp_path / "m.py").write_text("def mdel(): pass")
    with pytest.raises(trainer.UserError, match=r"has no function model\(\)") as caught:
        trainer.load(tmp_path / "job.yaml")
    assert caught.value.code is trainer.Exit.USER


def test_check_looks_here_for_data_and_modules(tmp_path: Path) -> None:
    """Only if the job may run here: other images have other modules."""
    (tmp_path / "job.yaml").write_text("{name: j, strategy: one_device, workload: m.py, data: {d: {path: there}}}")
    (tmp_path / "m.py").write_text("import nowhere\ndef model(): pass\ndef data(shard): pass\n")
    path, here = tmp_path / "job.yaml", ("local", None)
    for target in here:
        with pytest.raises(trainer.UserError, match=r"nowhere|no such folder"):
            trainer.load(path).check(target)
    (tmp_path / "there").mkdir()
    for target in here:
        with pytest.raises(trainer.UserError, match="import nowhere: no such module"):
            trainer.load(path).check(target)
    trainer.load(path).check("fake")
    trainer.load(path, {"image": "mine:1"}).check()
    assert [("check", load_file(path))] == fake.ASKED


def test_a_dataset_that_is_not_here_is_found_before_the_job_starts(tmp_path: Path) -> None:
    """On this machine, and where no target is named."""
    path = tmp_path / "job.yaml"
    path.write_text("{name: j, strategy: one_device, workload: digits, dataset: no.npz}")
    job = trainer.load(path)
    checks = (job.check, lambda: job.check("local"), lambda: job.submit("local"), lambda: job.check("kubernetes"))
    for check in checks:
        with pytest.raises(trainer.UserError, match=r"^dataset: '\S+/no.npz': (no such file on|cannot be read)"):
            check()
    job.check("compose")
    (tmp_path / "no.npz").touch()
    job.check()
    job.check("local")


def test_what_a_target_refuses_has_its_code() -> None:
    with pytest.raises(trainer.TrainerError, match="is no name for a job here") as caught:
        trainer.load(PS, {"name": "refused"}).check("fake")
    assert caught.value.code is Exit.TARGET


def test_files_name_the_command_that_writes_them() -> None:
    job = trainer.load(PS, {"train.steps": 617})
    assert job.render("fake") == f"# trainer render fake {PS} --set train.steps=617\n"
    jobs = [("a", job), ("b", trainer.load(PS, {"name": "b"}))]
    assert render("fake", jobs) == f"# trainer render fake a={PS} b={PS} --set train.steps=617 --set name=b\n"


def test_submit_gives_a_run_of_the_job() -> None:
    job = trainer.load(PS)
    run = job.submit("fake", namespace="research")
    assert [("submit", job.spec, f"trainer submit --target fake {PS}", False)] == fake.ASKED
    assert (run.name, run.target, run.namespace, repr(run)) == (
        "digits-ps",
        "fake",
        "research",
        "<Run of digits-ps on fake>",
    )
    assert run.submitted is not None
    assert run.submitted.objects == ["job/one", "job/two"]


def test_a_dry_run_starts_nothing() -> None:
    job = trainer.load(PS)
    assert job.dry_run("fake").objects == ["job/one", "job/two"]
    assert [("submit", job.spec, f"trainer submit --target fake {PS}", True)] == fake.ASKED


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"target": "kubernets"}, "target: 'kubernets': must be one of .*, local, fake; did you mean kubernetes?"),
        ({"target": "fake", "keep": True}, "keep: is no option of target 'fake'; it is for 'local'"),
        (
            {"target": "compose", "namespace": "n"},
            "namespace: is no option of target 'compose'; it is for 'kubernetes'",
        ),
    ],
    ids=str,
)
def test_what_no_target_has_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(trainer.UserError, match=f"^{message}"):
        trainer.load(PS).submit(**more)
    assert fake.ASKED == []


def test_warnings_are_those_of_the_target_too(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(
        "{name: j, strategy: multi_worker_mirrored, program: [python3], tasks: {worker: 2}, env: {TOKEN: x}}"
    )
    assert [line.partition(":")[0] for line in trainer.load(path).warnings()] == ["env.TOKEN"]
    assert [line.partition(":")[0] for line in trainer.load(path).warnings("kubernetes")] == [
        "env.TOKEN",
        "kubernetes.volume.access",
    ]
