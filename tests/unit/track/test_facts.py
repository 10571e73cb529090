"""What a run says of a job besides its figures: parameters, tags, and the story in the journal."""

import json
import subprocess
from pathlib import Path

import pytest

from trainer.job.errors import UserError
from trainer.job.load import build
from trainer.model_dir import journal, layout
from trainer.protocol import facts
from trainer.protocol.facts import Began, Cause, Ended, Fact, Formed, Loss, Lost, Stalled
from trainer.track import run_facts, story

KILLED = Loss(Cause.KILLED, signal="SIGKILL")
LOST = Lost("worker:0", KILLED, "re_forming")


def write(model_dir: Path, *happened: Fact, at: float = 100.0) -> None:
    """Adds facts to the journal, a second apart."""
    lines = [facts.entry(at + i, each, 1, 10 * i).document() for i, each in enumerate(happened)]
    journal.append(str(model_dir), 1, lines)


def test_a_story_is_that_of_the_last_start(tmp_path: Path) -> None:
    assert story.read(str(tmp_path)) == story.Story()
    write(tmp_path, Began("1"), Formed(1, 2), LOST, Formed(2, 2), Ended(143, "stopped"))
    first = story.read(str(tmp_path))
    assert (first.generations, first.restarts, first.code, first.message) == (2, 1, 143, "stopped")
    assert first.lost == "worker:0 lost (killed by SIGKILL), re-forming"
    write(tmp_path, Began("2"), Formed(3, 2), at=200.0)
    again = story.read(str(tmp_path))
    assert (again.started, again.began, again.generations, again.restarts) == (100.0, 200.0, 3, 0)
    assert again.ended is None


def test_restarts_are_losses_that_restart_something(tmp_path: Path) -> None:
    asked, hung = Loss(Cause.ASKED_TO_STOP), Loss(Cause.NO_NEW_STEP, seconds=9.0, setting="deadlines.progress")
    lost = [Lost("worker:0", KILLED, then) for then in ("re_forming", "others_continue", "not_awaited")]
    write(tmp_path, Began("1"), *lost, Lost("worker:1", asked, "re_forming"), Stalled(hung))
    assert story.read(str(tmp_path)).restarts == 3


def test_a_journal_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    reader = story.Reader(str(tmp_path))
    assert reader.read().began == 0.0
    write(tmp_path, Began("1"))
    assert (reader.read().began, reader.read().ended) == (100.0, None)
    write(tmp_path, Ended(0))
    assert reader.read().ended is not None


def test_the_spec_is_that_of_the_last_start_or_of_the_result(tmp_path: Path) -> None:
    model_dir = str(tmp_path)
    assert story.spec(model_dir) is None
    (layout.make_own(model_dir) / "result.json").write_text(
        json.dumps({"spec": {"name": "first", "strategy": "one_device"}})
    )
    found = story.spec(model_dir)
    assert found
    assert (found.name, found.directory) == ("first", model_dir)
    (layout.make_own(model_dir) / "spec.json").write_text(json.dumps({"name": "second", "strategy": "one_device"}))
    found = story.spec(model_dir)
    assert found
    assert found.name == "second"
    (layout.make_own(model_dir) / "spec.json").write_text(json.dumps({"name": "third", "strategy": "of tomorrow"}))
    with pytest.raises(UserError, match=r"cannot be read: spec: strategy: .*; use the trainer that ran it"):
        story.spec(model_dir)


def test_parameters_are_those_that_runs_are_compared_by(tmp_path: Path) -> None:
    spec = build(
        {
            "name": "j", "strategy": "parameter_server", "workload": "digits",
            "settings": {"width": 8, "names": ["é", 1]}, "tasks": {"ps": 1, "worker": 2},
            "env": {"API_KEY": "secret"}, "train": {"steps": 7, "learning_rate": 1e-4},
        }
    )  # fmt: skip
    found = run_facts.params(spec)
    wanted = {
        "strategy": "parameter_server", "workload": "digits", "tasks.ps": "1", "tasks.worker": "2", "train.steps": "7",
        "train.learning_rate": "0.0001", "settings.width": "8", "settings.names": '["é", 1]', "global_batch": "64",
    }  # fmt: skip
    assert {name: found.get(name) for name in wanted} == wanted
    assert "secret" not in str(found)
    program = build({"name": "j", "strategy": "one_device", "program": ["python", "a b.py"]})
    assert run_facts.params(program) == {
        "strategy": "one_device", "tasks.worker": "1", "program": "python 'a b.py'",
    }  # fmt: skip


def test_the_commit_is_that_of_the_repository_of_the_code(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("")
    spec = build({"name": "j", "strategy": "one_device", "workload": str(tmp_path / "model.py")})
    assert "mlflow.source.git.commit" not in run_facts.tags(spec)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=x", "-c", "user.email=x"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "log", "-1", "--format=%H"], check=True, capture_output=True, text=True).stdout
    assert run_facts.tags(spec)["mlflow.source.git.commit"] == commit.strip()


def test_tags_of_an_earlier_end_are_emptied_for_a_job_that_runs_again(tmp_path: Path) -> None:
    assert run_facts.no_longer_true({}) == {}
    write(tmp_path, Began("1"), Ended(2, "x"))
    ended = run_facts.story_tags(story.read(str(tmp_path)))
    assert (ended["trainer.exit_code"], ended["trainer.seconds"]) == ("2", "1.000")
    assert run_facts.no_longer_true(ended) == {"trainer.exit_code": "", "trainer.message": ""}
