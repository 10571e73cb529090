"""The commands that use a target, with one that is unknown to the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli import fake
from trainer.api import started
from trainer.cli import jobs
from trainer.cli import main as cli
from trainer.job.errors import Exit
from trainer.job.load import load_file
from trainer.job.messages import how_to_install
from trainer.model_dir import layout, result
from trainer.model_dir import state as job_state
from trainer.model_dir.result import Result, Training
from trainer.model_dir.state import End, State
from trainer.protocol.status import TaskRow
from trainer.targets import base
from trainer.targets.base import ContainerState, Job, JobOverview, Submitted
from trainer.targets.local import output
from trainer.targets.local.output import Output
from trainer.targets.show.overview import describe

ROOT = Path(__file__).parents[3]
SPEC = """
name: j
strategy: multi_worker_mirrored
tasks: {worker: 3}
"""
SETS = ["--set", "name=other", "--set", "train.steps=617"]


@pytest.fixture(autouse=True)
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A spec in a folder of its own, and a target named `fake` beside those of trainer."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRAINER_SET", raising=False)
    monkeypatch.setitem(
        base.TARGETS, "fake", base.Entry("tests.unit.cli.fake:Fake", options=frozenset(base.OPTIONS), poll_seconds=0.0)
    )
    monkeypatch.setattr(fake, "ASKED", [])
    monkeypatch.setattr(fake, "PHASES", [])
    Path("job.yaml").write_text(SPEC)
    return "job.yaml"


def trainer(*words: str, code: int = 0) -> list[Any]:
    """Runs a command; returns what the fake target was asked."""
    assert cli.main(words) == code
    asked, fake.ASKED[:] = list(fake.ASKED), []
    return asked


def test_every_command_reaches_a_target_that_only_the_registry_knows(
    spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --set wherever there is a spec: each is asked about the changed one."""
    changed = load_file(spec, SETS[1::2])
    named, on = Job("other", changed), ("--target", "fake")
    written = f"job.yaml {' '.join(SETS)}"
    assert trainer("check", spec, *on, *SETS) == [("check", changed)]
    assert "617" in capsys.readouterr().out
    assert trainer("render", "fake", spec, *SETS) == [("render", ("", changed))]
    assert capsys.readouterr().out == f"# trainer render fake {written}\n"
    assert trainer("submit", spec, *on, *SETS) == [
        ("submit", changed, f"trainer submit --target fake {written}", False)
    ]
    assert capsys.readouterr().out == (
        f"other: submitted, 2 objects; next: trainer status --watch --target fake {written}\n"
    )
    assert trainer("status", spec, *on, *SETS) == [("status", named)]
    assert capsys.readouterr().out.splitlines() == [
        "phase      done",
        "step       5 of 2,000",
        "last line  done: steps=5",
        "",
        "task      state    step  restarts  reason",
        "chief:0   running        2",
        "worker:0  pending  4     1         no node",
    ]
    assert trainer("logs", spec, *on, *SETS, "--task", "worker:0") == [("logs", named, "worker:0", False)]
    assert capsys.readouterr().out == "chief:0     | step 1\nevaluator:0 | scored | 1\n"
    assert trainer("delete", spec, *on, *SETS, "--volumes") == [("delete", named, True)]
    assert capsys.readouterr().out == "other: deleted\n"


@pytest.mark.parametrize("path", sorted((ROOT / "trainer/cli").glob("*.py")), ids=lambda path: path.name)
def test_the_command_line_names_no_target(path: Path) -> None:
    names = set(base.elsewhere()) - {"fake"}
    assert not [name for name in names if name in path.read_text().lower()]


def test_a_target_is_imported_when_it_is_wanted(spec: str) -> None:
    registry = "import sys; from trainer.targets import base; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", registry], cwd=ROOT, capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"pydantic", "asyncio", *(entry.path.partition(":")[0] for entry in base.TARGETS.values())}


def test_what_a_target_refuses_ends_check(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    trainer("check", spec, "--target", "fake", "--set", "name=refused", code=Exit.TARGET)
    assert capsys.readouterr() == ("", "trainer: name: 'refused': is no name for a job here\n")


def test_a_job_can_be_given_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert trainer("status", "--target", "fake", "another") == [("status", Job("another"))]
    capsys.readouterr()
    trainer("status", "--target", "fake")
    assert capsys.readouterr().out.splitlines() == ["job  phase   submitted", "j    active  2026-01-02T03:04:05Z"]
    trainer("status", "--target", "fake", "-o", "json")
    assert json.loads(capsys.readouterr().out) == [{"job": "j", "phase": "active", "submitted": "2026-01-02T03:04:05Z"}]
    trainer("delete", "--target", "fake", "another")
    assert "another: deleted; its volume stays, with checkpoints and model" in capsys.readouterr().out


def test_a_dry_run_lists_what_would_be_applied(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    ((_, _, _, dry_run),) = trainer("submit", spec, "--target", "fake", "--dry-run")
    assert dry_run
    assert capsys.readouterr().out == "job/one: would be applied\njob/two: would be applied\n"


def test_json_leaves_out_what_the_target_does_not_know(capsys: pytest.CaptureFixture[str]) -> None:
    trainer("status", "j", "--target", "fake", "-o", "json")
    assert json.loads(capsys.readouterr().out) == {
        "name": "j",
        "phase": "done",
        "code": 0,
        "last_line": "done: steps=5",
        "tasks": {
            "chief:0": {"state": "running", "code": 0, "restarts": 2},
            "worker:0": {"state": "pending", "code": 0, "restarts": 0, "reason": "no node"},
        },
        "job": json.loads(json.dumps(fake.STATUS.document())),
    }


def test_watch_prints_what_has_changed_until_the_job_is_over(capsys: pytest.CaptureFixture[str]) -> None:
    fake.PHASES[:] = ["running", "running", "ending", "failed", "never asked for"]
    asked = trainer("status", "j", "--target", "fake", "--watch", "-o", "json", code=Exit.DIVERGED)
    assert len(asked) == 4
    seen = [json.loads(line)["phase"] for line in capsys.readouterr().out.splitlines()]
    assert seen == ["running", "ending", "failed"]


def test_a_namespace_is_given_to_the_target_and_named_in_what_comes_next(
    spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer("submit", spec, "--target", "fake", "--namespace", "research")
    assert "next: trainer status --watch --target fake --namespace research j\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("done", "text"),
    [
        (Submitted("j", ["a/b"]), "j: submitted, 1 objects; next: trainer status --watch WAY"),
        (Submitted("j"), "j: submitted; next: trainer status --watch WAY"),
        (Submitted("j", ["a/b"], new=False), "j: already exists; next: trainer status --watch WAY"),
        (
            Submitted("j", ["a/b", "c/d", "e/f"], new=False, restored=["a/b", "e/f"]),
            "j: already exists; made again: a/b, e/f; next: trainer status --watch WAY",
        ),
        (
            Submitted("j", ["a/b"], new=False, ended="failed"),
            "j: already exists, and is failed; to run it again: trainer delete WAY",
        ),
    ],
)
def test_what_a_submission_has_done_is_one_line(done: Submitted, text: str) -> None:
    assert jobs._submitted(done, "WAY") == text


def test_profiles_are_read_where_the_target_has_them(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    one, two = load_file(spec, ["name=j"]), load_file(spec)
    assert trainer("render", "fake", f"a={spec}", f"b={spec}") == [("render", ("a", one), ("b", two))]
    capsys.readouterr()
    trainer("render", "fake", spec, spec, code=Exit.USER)
    assert "several jobs in one file need one profile each" in capsys.readouterr().err


def test_options_that_a_target_lacks_are_refused(
    spec: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(base.TARGETS, "fake", base.TARGETS["fake"]._replace(options=frozenset()))
    assert trainer("logs", spec, "--target", "fake", "--task", "chief:0", code=Exit.USER) == []
    assert (
        capsys.readouterr().err
        == "trainer: --task: is not an option of --target fake; it is for --target kubernetes or --target compose or "
        "--target local\n"
    )


def test_a_target_whose_package_is_missing_is_one_line(
    spec: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lacking = base.TARGETS["fake"]._replace(packages=frozenset({"json", "no_such_package"}))
    monkeypatch.setitem(base.TARGETS, "fake", lacking)
    assert trainer("submit", spec, "--target", "fake", code=Exit.USER) == []
    assert capsys.readouterr().err == f"trainer: no_such_package: is not installed; {how_to_install('deploy')}\n"


def test_a_task_that_was_started_again_by_target_and_supervisor_shows_both() -> None:
    known = replace(fake.STATUS, tasks={"ps:0": TaskRow(state="running", restarts=2, figures={})})
    found = JobOverview("j", "running", tasks={"ps:0": ContainerState("running", 0, "n1", 1)}, job=known)
    assert describe(found).splitlines()[-2:] == ["task  state    node  restarts", "ps:0  running  n1    3"]


# Of this machine. -------------------------------------------------------------------------------------


def test_the_status_of_a_model_dir_needs_no_target(capsys: pytest.CaptureFixture[str]) -> None:
    run = Path("runs/j")
    run.mkdir(parents=True)
    training = Training(617, {}, None, None, {}, None, None)
    result.write("runs/j", Result("j", "one_device", training, 3.5, 1, [], {}, [], {}, {}, {}))
    (layout.make_own(run) / ".lock").touch()
    assert trainer("status", "runs/j") == trainer("status", "runs/j/", "--watch") == []
    assert (
        capsys.readouterr().out == "phase        done\nstatus       succeeded\nsteps        617\ngenerations  1\n" * 2
    )
    on = ("job.yaml", "--target", "local", "--set", "train.steps=617")
    assert trainer("status", *on) == []
    assert trainer("status", *on, "--set", "model_dir=runs/k", code=Exit.USER) == []
    out, err = capsys.readouterr()
    assert "\nsteps        617\n" in out
    assert err == "trainer: runs/k: no job runs there on this machine; none was started; `trainer local` starts one\n"
    assert trainer("status", "runs/j", "--set", "train.steps=1", code=Exit.USER) == []
    assert capsys.readouterr().err.startswith("trainer: --set: 'runs/j' is a folder, and --set changes the values")
    assert trainer("status", *on[:4], "train.steps=700", code=Exit.USER) == []
    assert "; its result has 617 steps, not those of the spec; " in capsys.readouterr().err


def test_a_job_of_a_target_is_not_a_folder_of_the_same_name(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("digits").mkdir()
    (layout.make_own("digits") / ".lock").touch()
    assert trainer("status", "--target", "fake", "digits") == [("status", Job("digits"))]
    monkeypatch.setattr(base, "TARGETS", {name: base.TARGETS[name] for name in ("fake", "local")})  # by default fake
    assert trainer("status", "--namespace", "prod", "digits") == [("status", Job("digits"))]
    assert trainer("status", "digits", code=Exit.USER) == []
    assert capsys.readouterr().err.startswith("trainer: digits: no job runs there on this machine; ")


def test_a_spec_without_a_target_is_the_job_of_this_machine_where_one_has_begun(
    spec: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "TARGETS", {name: base.TARGETS[name] for name in ("fake", "local")})  # by default fake
    commands = (("status", spec), ("stacks", spec), ("logs", spec))
    for words in commands:
        assert [asked[0] for asked in trainer(*words)] == [words[0]]
    capsys.readouterr()
    kept = Output("runs/j")
    kept.line("local", output.started())
    kept.line("worker:1", "step 1")
    kept.close()
    for printing in (("logs", spec), ("logs", "runs/j", "--follow"), ("logs", spec, "--target", "local")):
        assert trainer(*printing) == []
        assert capsys.readouterr().out == "worker:1    | step 1\n"
    assert trainer("logs", "runs/j", "--task", "worker:0") == []
    assert trainer("status", spec, code=Exit.USER) == trainer("stacks", spec, code=Exit.TARGET) == []
    assert "runs/j: no job runs there on this machine" in capsys.readouterr().err
    for words in commands:
        assert [asked[0] for asked in trainer(*words, "--target", "fake")] == [words[0]]
        assert [asked[0] for asked in trainer(*words, "--namespace", "n")] == [words[0]]


def test_a_job_of_this_machine_that_failed_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    Path("digits").mkdir()
    (layout.make_own("digits") / ".lock").touch()
    job_state.fail("digits", State(end=End("j", 13, "worker:1: the loss is nan")))
    assert trainer("status", "digits", "--watch", code=Exit.DIVERGED) == []
    assert capsys.readouterr().out == (
        "phase      failed\nlast line  worker:1: the loss is nan\nnext       the same command starts again; "
        "`trainer debug digits` says what to try; TensorFlow's output is in digits/.trainer/logs\n"
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "JOB: is missing: the path of a job spec, or a model_dir"),
        (["digits"], "digits: cannot be read: No such file or directory"),
        (
            ["job.yaml", "--namespace", "n"],
            "--namespace: is not an option of --target local; it is for --target kubernetes or --target fake",
        ),
    ],
)
def test_invalid_status_requests_for_this_machine_are_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert trainer("status", "--target", "local", *words, code=Exit.USER) == []
    assert capsys.readouterr().err == f"trainer: {message}\n"


def test_a_folder_in_which_no_job_began_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    Path("digits").mkdir()
    assert trainer("status", "--target", "fake", "digits") == [("status", Job("digits"))]


def test_stacks_of_all_tasks_or_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert trainer("stacks", "--target", "fake", "j") == [("stacks", Job("j"))]
    whole = capsys.readouterr().out
    assert whole.startswith(f"{fake.STACKS.text}\n\nworker:1: in step 12\n  main thread\n  -> mine.py:7 read()\n")
    assert "chief:0, worker:0: in step 12" in whole
    trainer("stacks", "--target", "fake", "j", "worker:0")
    assert "worker:0: in step 12" in (one := capsys.readouterr().out)
    assert "chief:0" not in one


# Without --target and --set. --------------------------------------------------------------------------


def test_commands_that_follow_a_job_know_its_values_and_its_target(spec: str) -> None:
    trainer("submit", spec, "--target", "fake", *SETS)
    named = Job("other", load_file(spec, ["name=other", "train.steps=617"]))
    assert trainer("status", spec) == [("status", named)]
    assert trainer("logs", spec, "--task", "worker:2") == [("logs", named, "worker:2", False)]
    assert trainer("stacks", spec) == [("stacks", named)]
    assert trainer("debug", spec, "-o", "x.zip", code=0) == [("debug", named)]
    assert trainer("delete", spec) == [("delete", named, False)]


def test_delete_means_no_job_of_this_machine(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    started.note(spec, "local", "j", [])
    Path("runs/j").mkdir(parents=True)
    (layout.make_own("runs/j") / ".lock").touch()
    trainer("submit", spec, "--target", "fake", *SETS)
    started.note(spec, "local", "j", [])
    assert trainer("delete", spec)[0][0] == "delete"


def test_status_alone_lists_what_was_started_here_and_says_what_else_was_asked(
    spec: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "none")
    monkeypatch.setattr("trainer.api.started.known", list)
    assert cli.main(["status"]) == Exit.TARGET
    assert capsys.readouterr().err.endswith("; asked: kubernetes, and this machine, where no job was started\n")
    monkeypatch.undo()


def test_status_alone_finds_a_job_in_containers(
    tmp_path: Path, spec: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "none")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    entry = base.Entry("tests.unit.cli.fake:Fake", options=frozenset(base.OPTIONS), keeps_names=False)
    monkeypatch.setitem(base.TARGETS, "fake", entry)
    trainer("submit", spec, "--target", "fake")
    capsys.readouterr()
    assert cli.main(["status"]) == 0
    out, err = capsys.readouterr()
    title, row = (line.split() for line in out.splitlines())
    assert title == ["job", "phase", "submitted", "target"]
    assert (row[:2], row[3]) == (["j", "done"], "fake")
    assert err.startswith("trainer: warning: kubernetes was asked too: no Kubernetes to connect to (")
