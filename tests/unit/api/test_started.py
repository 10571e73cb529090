"""Which jobs were started from which spec: a command that follows one needs neither --set nor --target again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import trainer
from tests.unit.cli import fake
from trainer.api import started
from trainer.job.load import load_file
from trainer.model_dir import layout
from trainer.targets import base
from trainer.targets.base import Job


@pytest.fixture(autouse=True)
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A spec in a folder of its own, and a target named `fake`; nothing was started yet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRAINER_SET", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setitem(
        base.TARGETS, "fake", base.Entry("tests.unit.cli.fake:Fake", options=frozenset({"namespace", "task"}))
    )
    monkeypatch.setattr(fake, "ASKED", [])
    Path("job.yaml").write_text("{name: j, strategy: multi_worker_mirrored, tasks: {worker: 3}}")
    return "job.yaml"


def begin(model_dir: str) -> None:
    (layout.make_own(model_dir) / layout.LOCK).touch()


def test_a_job_is_found_where_and_as_it_was_started(spec: str) -> None:
    trainer.load(spec, set={"name": "other", "tasks.worker": 5}).submit("fake", namespace="team-a")
    run = trainer.attach(spec)
    assert (run.target, run.namespace, run.name) == ("fake", "team-a", "other")
    assert run.job == Job("other", load_file(spec, ["name=other", "tasks.worker=5"]))
    assert trainer.attach(spec, "fake").name == "other"
    assert trainer.attach(spec, set={"train.steps": 1}).target == "kubernetes", "another job"
    assert trainer.attach(spec, set={"name": "other", "tasks.worker": 5}).target == "fake"


def test_the_last_start_counts_and_that_on_a_target_if_one_is_named(spec: str) -> None:
    trainer.load(spec).submit("fake")
    begin("runs/x")
    started.note(spec, "local", "j", ["model_dir=runs/x"])
    run = trainer.attach(spec)
    assert run.job.spec is not None
    assert (run.target, run.job.spec.directory) == ("local", "runs/x")
    assert trainer.attach(spec, "fake").job.spec == load_file(spec)
    trainer.load(spec, set={"train.steps": 7}).submit("fake")
    assert (trainer.attach(spec).target, trainer.attach(spec, "local").job.spec) == ("fake", run.job.spec)


def test_a_job_of_this_machine_is_found_from_every_folder(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    begin("runs/x")
    started.note(spec, "local", "j", ["model_dir=runs/x"])
    where = Path.cwd()
    (where / "deeper").mkdir()
    monkeypatch.chdir("deeper")
    run = trainer.attach("../job.yaml")
    assert run.job.spec is not None
    assert run.job.spec.directory == str(where / "runs/x")


def test_a_job_of_this_machine_whose_folder_is_gone_is_forgotten(spec: str) -> None:
    started.note(spec, "local", "j", ["model_dir=runs/x"])
    assert trainer.attach(spec).target == "kubernetes"


def test_values_that_a_spec_no_longer_takes_are_left_out(spec: str) -> None:
    trainer.load(spec, set={"tasks.worker": 5}).submit("fake")
    Path(spec).write_text("{name: j, strategy: parameter_server, tasks: {worker: 1, ps: 1}}")
    started.note(spec, "fake", "j", ["tasks.nonsense=5"])
    assert trainer.attach(spec).job.spec == load_file(spec)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"started": 7}', '{"started": [7, {}, {"spec": 1}]}', '{"started": [{"new": 1}]}']
)
def test_a_file_of_something_else_is_no_error(spec: str, text: str) -> None:
    path = Path("state/trainer/started.json")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert started.last(spec, ["fake"]) is None
    trainer.load(spec).submit("fake")
    assert json.loads(path.read_text())["started"][0]["target"] == "fake"


def test_without_a_place_to_remember_a_job_starts_nevertheless(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(Path("file").absolute()))
    trainer.load(spec).submit("fake")
    assert trainer.attach(spec).target == "kubernetes"


def test_only_the_newest_are_remembered(spec: str) -> None:
    for number in range(5):
        started.note(f"{number}.yaml", "fake", "j", [])
        started.note(spec, "fake", "j", [f"train.steps={number}"])
    assert Path("state/trainer/started.json").stat().st_mode & 0o777 == 0o600
    assert [Path(each.spec).name for each in started.known()] == [*(f"{number}.yaml" for number in range(5)), spec]


# What was asked. --------------------------------------------------------------------------------------


def test_an_error_names_the_targets_that_were_asked(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "none")
    with pytest.raises(trainer.TrainerError) as caught:
        trainer.attach(spec).status()
    text = str(caught.value)
    assert (
        "; asked: kubernetes, and this machine, where no job has begun in runs/j; elsewhere: --target compose or "
        in text
    )
    with pytest.raises(trainer.TrainerError) as caught:
        trainer.attach(spec, "kubernetes").status()
    assert "asked" not in str(caught.value)


def test_a_name_that_no_job_has_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "none")
    asked = "; asked: kubernetes, and this machine, where no job has begun in a folder nosuch, "
    with pytest.raises(trainer.TrainerError, match=rf"^nosuch: no Kubernetes to connect to .*{asked}"):
        trainer.attach("nosuch")
    for target in ("local", "compose"):
        with pytest.raises(trainer.UserError, match=r"^nosuch: cannot be read: No such file"):
            trainer.attach("nosuch", target)


def test_a_task_that_no_job_has_is_refused_at_once(spec: str) -> None:
    with pytest.raises(
        trainer.UserError, match=r"^task: 'nonsense': must be TYPE:INDEX of a task of j: worker:0, worker:1"
    ):
        trainer.attach(spec, "fake").logs("nonsense")
    assert fake.ASKED == []
