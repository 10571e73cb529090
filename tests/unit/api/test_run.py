"""Jobs that were submitted, on a target that replies as it is told."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import trainer
from tests.unit.cli import fake
from trainer.api.result import Result
from trainer.job.errors import Exit
from trainer.job.load import load_file
from trainer.model_dir import layout, result
from trainer.model_dir.result import Computed, Ran, Training
from trainer.targets import base
from trainer.targets.base import Job, JobOverview, LogLine
from trainer.targets.outage import NoAnswer, Refused

SPEC = "{name: j, strategy: multi_worker_mirrored, tasks: {worker: 3}}"


@pytest.fixture(autouse=True)
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A spec in a folder of its own, and `fake` as the only target."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRAINER_SET", raising=False)
    entry = base.Entry("tests.unit.cli.fake:Fake", options=frozenset({"namespace", "task"}), poll_seconds=0.0)
    monkeypatch.setitem(base.TARGETS, "fake", entry)
    for name in ("ASKED", "PHASES"):
        monkeypatch.setattr(fake, name, [])
    Path("job.yaml").write_text(SPEC)
    return "job.yaml"


def of_phase(monkeypatch: pytest.MonkeyPatch, phase: str, **more: Any) -> trainer.Run:
    """A run whose status stays the same."""
    monkeypatch.setattr(fake.Fake, "status", lambda *_: JobOverview("j", phase, **more))
    return trainer.attach("j", "fake")


def made(figures: Training | Computed | Ran) -> result.Result:
    return result.Result("j", "one_device", figures, 3.5, 1, [], {}, [], {}, {}, {})


# Waiting. ---------------------------------------------------------------------------------------------


def test_wait_returns_when_the_job_has_succeeded() -> None:
    fake.PHASES[:] = ["pending", "running", "ending", "done", "never asked for"]
    trainer.attach("j", "fake").wait()
    assert fake.PHASES == ["never asked for"]


def test_a_job_that_failed_is_an_error_with_code_and_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    run = of_phase(monkeypatch, "failed", code=13, last_line="trainer: the loss is nan at step 3", next="resume it")
    for ask in (run.wait, lambda: run.result):
        with pytest.raises(trainer.JobFailed) as caught:
            ask()
        assert str(caught.value) == "j: exit code 13: the loss is nan at step 3; resume it"
        assert caught.value.code is Exit.DIVERGED
        assert caught.value.status == run.status()


def test_a_code_that_is_none_of_trainer_s_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(trainer.JobFailed, match=r"^j: exit code 137: its logs have the reason$") as caught:
        of_phase(monkeypatch, "failed", code=137).wait()
    assert caught.value.code == 137


def test_a_wait_has_a_deadline() -> None:
    fake.PHASES[:] = ["running"] * 1_000_000
    run = trainer.attach("j", "fake")
    with pytest.raises(TimeoutError, match=r"^j: is running, not over after 0.01 s; wait again, or longer$"):
        run.wait(0.01)
    assert fake.PHASES, "it was asked a few times, not until the job's end"
    fake.PHASES[:] = ["done"]
    run.wait(0)


@pytest.mark.parametrize("implied", [False, True], ids=["target named", "target implied"])
def test_a_target_that_does_not_answer_for_a_while_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], implied: bool
) -> None:
    answers: list[Any] = [
        "running",
        NoAnswer("no answer"),
        Refused("not yet"),
        NoAnswer("no answer"),
        "running",
        "done",
    ]

    def status(*_: object) -> JobOverview:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return JobOverview("j", answer)

    monkeypatch.setattr(fake.Fake, "status", status)
    run = trainer.attach("j", "fake")
    replace(run, implied=implied).wait()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(";")[0] for line in lines] == [
        "trainer: no answer", "trainer: there is an answer again, after 0 s",
    ]  # fmt: skip
    answers[:] = [NoAnswer("no answer")]
    with pytest.raises(NoAnswer, match=r"^no answer$"):  # it may be the wrong address
        trainer.attach("j", "fake").wait()


@pytest.mark.parametrize("timeout", [-1, -0.5, float("nan")])
def test_a_negative_wait_is_refused(timeout: float) -> None:
    with pytest.raises(trainer.UserError) as caught:
        trainer.attach("j", "fake").wait(timeout)
    assert str(caught.value) == (
        f"timeout: {timeout!r}: must be 0 or more seconds; leave it out to wait as long as it takes"
    )
    assert fake.ASKED == []


# Results. ---------------------------------------------------------------------------------------------


def test_numbers_of_a_training_are_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    found = made(Training(617, {"accuracy": 0.97, "recall": 0.5}, 1234.5, None, {}, None, None))
    run = of_phase(monkeypatch, "done", job=found)
    assert (run.result.test_accuracy, run.result.test_recall, run.result.steps) == (0.97, 0.5, 617)
    assert (run.result.job, run.result.examples_per_second) == ("j", 1234.5)
    assert run.result.figures == found.figures
    assert run.result.document() == found.document()
    assert {"test_accuracy", "seconds", "document"} <= set(dir(run.result))
    with pytest.raises(AttributeError) as caught:
        _ = run.result.test_precision
    assert str(caught.value) == (
        "result: 'test_precision': no such number; it has steps, examples_per_second, test_accuracy, test_recall"
    )


@pytest.mark.parametrize(
    ("figures", "name", "value"),
    [
        (Computed({"y": 238, "text": "x"}), "y", 238),
        (Ran({"auc": 0.75, "note": "x"}, 40, 1.5), "auc", 0.75),
        (Ran({"auc": 0.75, "steps": 3}, 40, 1.5), "steps", 3),
        (Ran({}, 40, 1.5), "seconds_to_first_step", 1.5),
    ],
)
def test_so_are_those_of_other_workloads(figures: Any, name: str, value: float) -> None:
    found = Result(**vars(made(figures)))
    assert getattr(found, name) == value
    for missing in ("text", "note", "test_accuracy", "_private"):
        assert not hasattr(found, missing)


def test_a_result_can_be_copied_and_pickled() -> None:
    """Both ask for attributes before there are any."""
    found = Result(**vars(made(Computed({"y": 238}))))
    for copied in (copy.deepcopy(found), pickle.loads(pickle.dumps(found))):  # noqa: S301 (our own)
        assert copied == found
        assert copied.y == 238


@pytest.mark.parametrize(
    ("phase", "more", "message"),
    [
        ("running", {}, "j: has no result yet: it is running; Run.wait() waits for its end"),
        ("done", {"unreadable": "version: 9"}, "j: version: 9"),
        ("done", {"last_line": "done: steps=5"}, "j: its result is in its volume only; done: steps=5"),
    ],
)
def test_why_there_is_no_result(
    phase: str, more: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(trainer.UserError) as caught:
        _ = of_phase(monkeypatch, phase, **more).result
    assert str(caught.value) == message


# Logs, and the end. -----------------------------------------------------------------------------------


def test_logs_are_read_each_time_from_the_first_line_on() -> None:
    logs = trainer.attach("j", "fake").logs("worker:1", follow=True)
    assert fake.ASKED == [], "only when they are read"
    for _ in range(2):
        assert list(logs) == [LogLine("chief:0", "step 1"), LogLine("evaluator:0", "scored | 1")]
    assert str(logs) == "chief:0     | step 1\nevaluator:0 | scored | 1"
    assert [("logs", Job("j"), "worker:1", True)] * 3 == fake.ASKED


def test_delete_keeps_the_volume_unless_it_is_named() -> None:
    run = trainer.attach("j", "fake")
    assert run.delete().volume_stays
    assert not run.delete(volumes=True).volume_stays
    assert [("delete", Job("j"), False), ("delete", Job("j"), True)] == fake.ASKED


# Finding a job again. ---------------------------------------------------------------------------------


def test_a_job_is_found_by_its_spec_or_its_name(spec: str) -> None:
    changed = load_file(spec, ["name=other"])
    for run, job in (
        (trainer.attach(spec, "fake", set={"name": "other"}), Job("other", changed)),
        (trainer.attach("j", "fake"), Job("j")),
    ):
        assert (run.job, run.target, run.submitted) == (job, "fake", None)


def test_a_folder_is_a_job_of_this_machine_where_one_began(spec: str) -> None:
    Path("runs/j").mkdir(parents=True)
    (layout.make_own("runs/j") / ".lock").touch()
    result.write("runs/j", made(Computed({"y": 238})))
    for target in (None, "local"):
        assert trainer.attach("runs/j", target).result.y == 238
    Path("j").mkdir()
    assert trainer.attach("j", "fake").target == "fake"


def test_without_a_target_the_job_that_has_begun_here_is_found(spec: str) -> None:
    Path("runs/j").mkdir(parents=True)
    assert trainer.attach(spec).target == "kubernetes"
    (layout.make_own("runs/j") / ".lock").touch()
    assert trainer.attach(spec).target == "local"
    assert trainer.attach(spec, set={"name": "other"}).target == "kubernetes"
    elsewhere = trainer.attach(spec, namespace="research")
    assert (elsewhere.target, elsewhere.namespace) == ("kubernetes", "research")


def test_a_folder_in_which_no_job_began_is_no_spec(spec: str) -> None:
    Path("runs/j").mkdir(parents=True)
    with pytest.raises(trainer.UserError) as caught:
        trainer.attach("runs/j")
    assert (
        str(caught.value) == "runs/j: is a folder in which no job of this machine has begun; give the spec of the job"
    )


def test_changes_need_a_spec(spec: str) -> None:
    Path("runs").mkdir()
    for job, target in (("j", "fake"), ("runs", "local")):
        with pytest.raises(trainer.UserError, match="--set changes the values of a spec"):
            trainer.attach(job, target, set={"train.steps": 1})


def test_jobs_are_listed() -> None:
    assert [each.job for each in trainer.jobs("fake", namespace="n")] == ["j"]
    with pytest.raises(trainer.UserError, match="JOB: is missing: the path of a job spec, or a model_dir"):
        trainer.jobs("local")
