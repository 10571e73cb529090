import fcntl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.job.errors import UserError
from trainer.model_dir import layout, result
from trainer.model_dir import state as job_state
from trainer.model_dir.files import read_json, write_json
from trainer.model_dir.result import JobEvent
from trainer.model_dir.stacks import Frame, Group, Stacks
from trainer.model_dir.state import End, PaceCounters, State


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A folder in which not even root can write: its path is that of a file."""
    path = tmp_path / "file"
    path.write_text("")
    yield path / "run"
    assert path.read_text() == ""


def test_the_first_chief_of_a_job_begins_with_its_own_start(tmp_path: Path) -> None:
    assert job_state.load(str(tmp_path), 123.5) == State(started=123.5)


def test_state_comes_back_as_it_was(tmp_path: Path) -> None:
    state = State(3, 4001, 100.5, 2.25, {"import": 2.25}, 5000.0, pace=PaceCounters(8.5, 10.0, 40, 1.7e9))
    job_state.save(str(tmp_path), state)
    assert job_state.load(str(tmp_path), 999) == state
    job_state.forget(str(tmp_path))
    assert job_state.load(str(tmp_path), 999) == State(started=999)
    job_state.forget(str(tmp_path))


HANG = Stacks(5.0, "2 tasks wait", [Group(["worker:0"], "", "in step 5", [[Frame("slow.py", 15, "rows", True)]])])
FAILED = State(
    3, 4001, 100.5, 2.25, step=40, generations_without_progress=2, incarnation="this one",
    pace=PaceCounters(8.5, 10.0, 40, 1.7e9), hangs=[HANG], end=End("j", 13, "\udc80: the loss is nan"),
)  # fmt: skip


def test_of_a_failure_only_its_report_its_pace_and_the_number_of_generations_stay(tmp_path: Path) -> None:
    job_state.fail(str(tmp_path), FAILED)
    assert job_state.load(str(tmp_path), 999) == State(
        3, 4001, 999, incarnation="this one", pace=FAILED.pace, hangs=[HANG], end=End("j", 13, "?: the loss is nan")
    )


def test_a_failure_on_a_full_disk_does_not_leave_the_state_before_it(tmp_path: Path) -> None:
    """The kernel refuses to write more than 10 bytes to a file, as a full disk does (setrlimit(2))."""
    job_state.save(str(tmp_path), State(3, 4001, 100.5, step=40, generations_without_progress=2))
    program = f"""
import resource
from trainer.model_dir.result import JobEvent
from trainer.model_dir.stacks import Frame, Group, Stacks
from trainer.model_dir.state import End, State, fail
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))
fail({str(tmp_path)!r}, State(3, end=End("j", 2, "the disk is full")))
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    assert job_state.load(str(tmp_path), 999) == State(started=999)
    assert list(layout.own(tmp_path).iterdir()) == [layout.state(tmp_path)], "a sign that a run followed a result"


@pytest.mark.usefixtures("unprivileged")
def test_a_failure_takes_the_room_of_the_state_before_it_where_no_file_can_be_made(tmp_path: Path) -> None:
    """As on a full disk."""
    job_state.save(str(tmp_path), State(3, 4001, 100.5, step=40, generations_without_progress=2))
    tmp_path.chmod(0o555)
    job_state.fail(str(tmp_path), FAILED)
    assert job_state.load(str(tmp_path), 999) == State(
        3, 4001, 999, incarnation="this one", pace=FAILED.pace, hangs=[HANG], end=End("j", 13, "?: the loss is nan")
    )
    tmp_path.chmod(0o755)


@pytest.mark.parametrize("text", ["", "{", "[1]", "\xff", '{"generation": 1'])
def test_a_state_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    (layout.make_own(tmp_path) / "state.json").write_text(text, encoding="latin-1")
    assert job_state.load(str(tmp_path), 1) == State(started=1)


def test_what_another_version_wrote_is_passed_over(tmp_path: Path) -> None:
    (layout.make_own(tmp_path) / "state.json").write_text('{"generation": 7, "colour": "blue"}')
    assert job_state.load(str(tmp_path), 1) == State(generation=7, started=1)


def test_the_events_that_version_0_2_kept_are_read(tmp_path: Path) -> None:
    events = [{"time": 1.5, "text": "generation 1 formed: 1 task", "kind": "formed", "task": None}]
    write_json(layout.state(tmp_path), {"generation": 1, "events": events})
    assert job_state.load(str(tmp_path), 1).events == [JobEvent(1.5, "generation 1 formed: 1 task", "formed")]


def test_a_warning_of_a_task_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    result.set_warning(str(tmp_path), "evaluator:0", "evaluator:0: of no job")
    path = layout.result(str(tmp_path))
    assert not path.exists()
    write_json(path, {"steps": 5, "warnings": ["evaluator:0: not yet", "another"]})
    result.set_warning(str(tmp_path), "evaluator:0", "evaluator:0: too slow")
    assert read_json(path) == {"steps": 5, "warnings": ["another", "evaluator:0: too slow"]}
    result.set_warning(str(tmp_path), "evaluator:0", None)
    assert read_json(path) == {"steps": 5, "warnings": ["another"]}


# Whole or not at all. -----------------------------------------------------------------------------


def test_nothing_but_the_file_is_there_after_writing(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    write_json(path, {"a": 2})
    assert read_json(path) == {"a": 2}
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_keeps_what_it_held(tmp_path: Path) -> None:
    """The kernel refuses to write more than 100 bytes to a file, as a full disk does (setrlimit(2))."""
    path = tmp_path / "x.json"
    write_json(path, {"a": 1})
    program = f"""
import pathlib, resource, sys
from trainer.job.errors import UserError
from trainer.model_dir.files import write_json
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    write_json(pathlib.Path({str(path)!r}), {{"a": "b" * 200}})
except UserError as error:
    sys.exit(str(error))
"""
    ended = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    assert ended.stderr == f"model_dir: {path}: cannot be written: File too large\n"
    assert read_json(path) == {"a": 1}
    assert list(tmp_path.iterdir()) == [path]


# The lock. ----------------------------------------------------------------------------------------


def test_the_lock_makes_the_folder_and_is_free_again_when_its_file_is_closed(tmp_path: Path) -> None:
    model_dir = str(tmp_path / "a" / "b")
    for _ in range(2):
        job_state.lock(model_dir).close()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    model_dir = str(tmp_path)
    with job_state.lock(model_dir):
        for _ in range(2):
            with pytest.raises(UserError, match="another job is using it"):
                job_state.lock(model_dir)
    job_state.lock(model_dir).close()


def test_where_the_spec_of_the_job_in_a_folder_differs_is_said(tmp_path: Path) -> None:
    here = {"name": "j", "train": {"steps": 300}, "python": "/usr/bin/python3"}
    with job_state.lock(str(tmp_path)):
        for there, said in (
            ({**here, "train": {}}, " (train.steps: unset there, 300 here)"),
            ({"name": "j", "train": {"steps": 300}}, ""),
            ({}, ""),
        ):
            write_json(layout.spec(tmp_path), there)
            with pytest.raises(UserError) as caught:
                job_state.lock(str(tmp_path), here)
            assert (
                str(caught.value)
                == f"model_dir: {tmp_path}: another job is using it{said}; wait, or choose another one"
            )


def test_only_a_chief_uses_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model_dir = str(tmp_path)
    assert not job_state.in_use(model_dir), "no job began there"
    with job_state.lock(model_dir):
        assert job_state.in_use(model_dir)
    assert not job_state.in_use(model_dir)
    # A chief starts at the moment at which another program asks.
    with layout.lock(model_dir).open() as asking:
        fcntl.flock(asking, fcntl.LOCK_SH)
        assert not job_state.in_use(model_dir)
        monkeypatch.setattr("trainer.clocks.pause", lambda seconds: asking.close())
        job_state.lock(model_dir).close()


def test_the_lock_ends_with_its_process_however_that_ends(tmp_path: Path) -> None:
    program = f"""
import os, signal
from trainer.model_dir import state as job_state
held = job_state.lock({str(tmp_path)!r})
print("held", flush=True)
input()
os.kill(os.getpid(), signal.SIGKILL)
"""
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(UserError):
            job_state.lock(str(tmp_path))
        process.communicate(b"\n")
    job_state.lock(str(tmp_path)).close()


def test_a_folder_that_cannot_be_made_is_reported(full: Path) -> None:
    with pytest.raises(UserError) as caught:
        job_state.lock(str(full))
    assert str(caught.value) == f"model_dir: {full}: cannot be written: Not a directory; choose another one"
