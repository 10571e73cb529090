"""How the chief ends its job: the result, what is kept of a job that did not succeed, and what it resumes from."""

import asyncio
import json
import time
from pathlib import Path

import pytest

from trainer.job import environment
from trainer.job.errors import Exit
from trainer.model_dir import checkpoint, layout, result
from trainer.model_dir import state as job_state
from trainer.model_dir.result import JobEvent, Result, Training
from trainer.protocol.events import Done
from trainer.supervisor.chief import ending
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.children.child import Child


def succeed(chief: Chief, done: Done) -> None:
    child = Child(chief._task, lambda *_: None)
    asyncio.run(asyncio.wait_for(chief._job_end.succeed(child, done), 30))


def test_a_valid_result_is_written_and_ends_the_job(
    chief: Chief, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chief._job_end.warnings = ["the code was changed"]
    succeed(chief, Done(step=40, test={"loss": 0.5}))
    written = json.loads(Path(layout.result(str(tmp_path))).read_text())
    assert (written["steps"], written["test_loss"], written["warnings"]) == (40, 0.5, ["the code was changed"])
    assert (chief._rendezvous.phase, chief._rendezvous.code, chief._rendezvous.watch.step) == ("done", Exit.OK, 40)
    assert chief._end_report.figures == {"steps": 40, "test_loss": 0.5}
    assert "done: steps=40 test_loss=0.5 generations=0" in capsys.readouterr().out


def test_a_result_that_the_users_code_has_broken_is_not_written(chief: Chief, tmp_path: Path) -> None:
    succeed(chief, Done(step=40, test={"loss": "low"}))
    assert not Path(layout.result(str(tmp_path))).exists()
    assert (chief._rendezvous.code, chief._rendezvous.message) == (
        Exit.BUG, "worker:0: its child ended without a valid result",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("step", "verified", "kept"),
    [
        (None, None, "no checkpoint was written yet"),
        (40, None, "the newest checkpoint is that of step 40"),
        (40, 41, "the checkpoint of step 40 is kept"),
    ],
)
def test_a_stopped_job_names_the_checkpoint_that_it_resumes_from(
    chief: Chief, tmp_path: Path, step: int | None, verified: int | None, kept: str
) -> None:
    if step is not None:
        checkpoint.save(tmp_path, step, {}, {})
    chief._agent.running = Child(chief._task, lambda *_: None)
    chief._agent.running.status.step = verified
    chief._job_end.stop()
    assert chief._rendezvous.code is Exit.STOPPED
    assert chief._rendezvous.message == f"stopped by a signal; {kept}; the same command resumes"


def test_a_stop_that_came_to_its_deadline_says_what_was_killed(chief: Chief) -> None:
    chief._agent.newest = Child(chief._task, lambda *_: None)
    chief._agent.leaving_since = time.monotonic() - chief._spec.deadlines.stop - 1
    chief._job_end.stop()
    killed = "the child of worker:0 had not ended within 8 s (deadlines.stop), and was killed"
    assert chief._rendezvous.message.endswith(f"; the same command resumes; {killed}")


@pytest.mark.parametrize(("code", "number"), [(Exit.OK, 0), (Exit.DIVERGED, 3), (Exit.STOPPED, 3)])
def test_generations_are_numbered_until_the_job_is_complete(
    chief: Chief, tmp_path: Path, code: Exit, number: int
) -> None:
    chief._record.accepted, chief._rendezvous.generation = True, 3
    chief._agent.leave()  # as all tasks were asked to: it waits for none
    chief._rendezvous.end(code, "x")
    assert asyncio.run(asyncio.wait_for(chief._job_end.finish(), 30)) is code
    assert job_state.load(str(tmp_path), 0.0).generation == number


@pytest.mark.parametrize(("code", "generation"), [(Exit.DIVERGED, 3), (Exit.MISSING, 0), (Exit.STOPPED, 3)])
def test_the_end_of_a_job_that_did_not_succeed_is_kept_until_the_next_start(
    chief: Chief, tmp_path: Path, code: Exit, generation: int
) -> None:
    chief._record.state.control_port, chief._record.state.incarnation = 4001, "this one"
    chief._record.accepted, chief._rendezvous.generation = True, generation
    chief._agent.leave()
    chief._rendezvous.end(code, "x")
    asyncio.run(asyncio.wait_for(chief._job_end.finish(), 30))
    kept = job_state.load(str(tmp_path), 0.0)
    assert (kept.control_port, kept.incarnation) == (4001, "this one"), "while the chief lingers it is asked"
    assert kept.end == job_state.End("j", code, chief._rendezvous.message)
    chief._record.lock.close()
    following = Chief(chief._agent)
    following._record.lock.close()
    assert following._record.state.end is None


SUCCEEDED = Result(
    "j", "one_device", Training(617, {"accuracy": 0.97}, 1234.5, 2.5, {"import": 1.5}, 0.1, None), 3.5, 2,
    ["a warning"], {f"worker:{i}": "task=worker" for i in range(1000)}, [JobEvent(1.0, "formed")], {"tensorflow": "2"},
    {"train.steps": 617}, {"name": "j"},
)  # fmt: skip
"""Of a thousand tasks."""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the kubelet, and a container that has it."""
    monkeypatch.delenv(environment.PARENT, raising=False)
    monkeypatch.setattr(ending, "TERMINATION_MESSAGE", tmp_path / "termination-log")
    ending.TERMINATION_MESSAGE.touch()
    return ending.TERMINATION_MESSAGE


def test_the_main_part_of_a_result_arrives(tmp_path: Path, place: Path) -> None:
    result.write(str(tmp_path), SUCCEEDED)
    ending._leave_result(str(tmp_path))
    assert place.stat().st_size <= ending.MOST_MESSAGE_BYTES
    found = result.parse_brief(json.loads(place.read_text()))
    assert (found.job, found.figures, found.seconds, found.generations, found.warnings) == (
        "j", SUCCEEDED.figures, 3.5, 2, ["a warning"],
    )  # fmt: skip
    assert (found.tasks, found.events, found.versions, found.compatibility_key, found.spec) == ({}, [], {}, {}, {})


def test_one_that_the_kubelet_would_cut_off_is_left_out(tmp_path: Path, place: Path) -> None:
    SUCCEEDED.warnings.append("w" * ending.MOST_MESSAGE_BYTES)
    result.write(str(tmp_path), SUCCEEDED)
    SUCCEEDED.warnings.pop()
    ending._leave_result(str(tmp_path))
    assert place.read_bytes() == b""


@pytest.mark.parametrize("content", [None, "cut o", '{"version": 99}'])
def test_without_a_result_there_is_no_message(tmp_path: Path, place: Path, content: str | None) -> None:
    if content is not None:
        (layout.make_own(tmp_path) / "result.json").write_text(content)
    ending._leave_result(str(tmp_path))
    assert place.read_bytes() == b""


def test_a_local_job_in_a_container_is_not_that_container_s(
    tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environment.PARENT, "1")
    result.write(str(tmp_path), SUCCEEDED)
    ending._leave_result(str(tmp_path))
    assert place.read_bytes() == b""


def test_elsewhere_no_file_is_made(tmp_path: Path, place: Path) -> None:
    place.unlink()
    result.write(str(tmp_path), SUCCEEDED)
    ending._leave_result(str(tmp_path))
    assert not place.exists()
