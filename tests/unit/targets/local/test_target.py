"""Jobs that a Python program starts on this machine, with stand-ins for their tasks."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import trainer
from tests.unit.targets.local.stand_in import make, stand_in
from trainer import host
from trainer.job.errors import Exit, UserError
from trainer.job.spec import JobSpec
from trainer.model_dir import layout
from trainer.model_dir import state as job_state
from trainer.targets.base import Job, LogLine
from trainer.targets.local import launcher, output, run, status
from trainer.targets.local.target import Local

# What trainer.targets.local.detached does, with another command for the tasks.
LAUNCHER = """
import json, sys
from trainer.targets.local import detached, run
whole = run.run
run.run = lambda spec, **more: whole(spec, command=json.loads(sys.argv[1]), **more)
sys.exit(detached.main())
"""
WAITS = "leave_at_sigterm(143); say('here'); forever()"
"""A task that trains until it is stopped."""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[JobSpec]:
    """Of chief:0, worker:0, worker:1 and ps:0. No job outlives the test."""
    monkeypatch.chdir(tmp_path)
    made = make()
    yield made
    monkeypatch.chdir(tmp_path)
    if launcher.is_used(made.directory):
        Local().delete(Job("j", made))


def tasks_are(monkeypatch: pytest.MonkeyPatch, **tasks: str) -> None:
    words = [sys.executable, "-c", LAUNCHER, json.dumps(stand_in(**tasks))]
    monkeypatch.setattr(launcher, "COMMAND", words)


@contextlib.contextmanager
def launcher_that_has_done_nothing(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Submits a job whose launcher stays as it is right after its start: the real one goes on at once."""
    monkeypatch.setattr(launcher, "COMMAND", [sys.executable, "-S", "-c", "import time; time.sleep(60)"])
    Local().submit(spec, "trainer submit")
    own = launcher.last(spec.directory)
    assert own
    try:
        yield
    finally:
        own.process.kill()
        own.process.wait()


def until(reached: Callable[[], Any], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not reached():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def printed(spec: JobSpec, text: str = "here") -> bool:
    path = layout.logs(spec.directory) / output.NAME
    return path.exists() and text in re.sub(" +", " ", path.read_text())


def test_a_job_runs_beside_its_program_until_it_has_ended(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks_are(monkeypatch, chief_0=WAITS, worker_0=WAITS, worker_1=WAITS, ps_0=WAITS)
    here, job = Local(), Job("j", spec)
    assert here.submit(spec, "trainer submit").job == "j"
    assert here.status(job).phase == "starting"
    assert (trainer.attach("runs/j").target, trainer.attach("runs/j").status().phase) == ("local", "starting")
    until(lambda: printed(spec, "chief:0 | here"))
    with pytest.raises(UserError, match=r"^model_dir: runs/j: a job is running there; trainer.attach\('runs/j'\)"):
        here.submit(spec, "trainer submit")
    assert printed(spec), "the output of the job that runs was not touched"
    assert here.delete(job).volume_stays
    found = here.status(job)
    assert (found.phase, found.code) == ("stopped", Exit.STOPPED)
    assert not output.written(spec.directory)
    here.submit(spec, "trainer submit")


def test_a_program_finds_its_job_after_it_has_gone_elsewhere(
    spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks_are(monkeypatch, chief_0="sys.exit(2)")
    here, job = Local(), Job("j", spec)
    here.submit(spec, "trainer submit")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    until(lambda: here.status(job).over)
    assert here.status(job).code == 2
    assert not Path("runs").exists()


def test_lines_have_their_tasks(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks_are(monkeypatch, chief_0="say('step 1 | loss 2'); report('x: is wrong'); sys.exit(2)", worker_1="say('mine')")
    here, job = Local(), Job("j", spec)
    here.submit(spec, "trainer submit")
    lines = list(here.logs(job, follow=True))
    assert here.status(job).over, "they end with the job"
    assert LogLine("chief:0", "step 1 | loss 2") in lines
    assert LogLine("chief:0", "trainer: x: is wrong") in lines
    assert list(here.logs(job, "worker:1")) == [LogLine("worker:1", "mine")]
    assert lines[-1].task == "local"
    assert lines[-1].text.startswith("ended with exit code 2: j failed: chief:0 ended with exit code 2")
    with pytest.raises(
        UserError,
        match=r"^task: 'worker:2': must be TYPE:INDEX of a task of j: chief:0, worker:0, worker:1, ps:0; did you mean ",
    ):
        here.logs(job, "worker:2")


ALIEN = """
import sys
import trainer
from trainer.job.errors import UserError
for job, more in (("job.yaml", {}), ("runs/j", {})):
    run = trainer.attach(job)
    print(run.target, run.status().phase)
    try:
        run.delete()
    except UserError as error:
        print(error)
trainer.api.run.Run.statuses = lambda run: print("watched on", run.target) or iter([run.status()])
for job in ("job.yaml", "runs/j", trainer.load("job.yaml")):
    trainer.watch(job)
"""


def test_another_process_finds_a_job_as_soon_as_it_is_submitted(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("job.yaml").write_text(f"{{name: j, strategy: {spec.strategy}, tasks: {{worker: 2, ps: 1}}}}")
    environ = {**os.environ, "KUBECONFIG": "none"}
    with launcher_that_has_done_nothing(spec, monkeypatch):
        done = subprocess.run([sys.executable, "-c", ALIEN], capture_output=True, text=True, env=environ, check=False)
    starting = "runs/j: its job is starting, and cannot be stopped yet; try again in a few seconds"
    assert done.stdout.splitlines()[:4] == ["local starting", starting] * 2, done.stderr
    assert done.stdout.count("watched on local") == 3
    assert not output.written(spec.directory), "it has ended"


def test_the_end_of_an_earlier_run_is_not_that_of_a_job_that_is_starting(
    spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "ANSWER_POLL_SECONDS", 0.01)
    with launcher_that_has_done_nothing(spec, monkeypatch):
        job_state.fail(spec.directory, job_state.State(end=job_state.End("j", 13, "nan")))
        monkeypatch.setattr("time.sleep", lambda _: job_state.forget(spec.directory))
        assert status.status(spec.directory).phase == "starting"


def test_a_job_without_output_has_no_logs(spec: JobSpec) -> None:
    with pytest.raises(UserError, match=r"^runs/j: no job has printed anything on this machine; run or submit it"):
        list(Local().logs(Job("j", spec)))


def test_why_no_task_was_started_is_known(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data was there when the job was submitted."""
    tasks_are(monkeypatch)
    spec = make(data={"d": {"path": "there"}})
    monkeypatch.setattr(run, "require", lambda _: None)
    Local().submit(spec, "trainer submit")
    until(lambda: Local().status(Job("j", spec)).over)
    found = Local().status(Job("j", spec))
    assert (found.phase, found.code) == ("failed", Exit.USER)
    assert (found.last_line or "").startswith("data.d.path: 'there': no such folder on this machine")


def test_what_is_missing_is_an_error_of_submit(spec: JobSpec) -> None:
    with pytest.raises(UserError, match="no such folder on this machine"):
        Local().submit(make(data={"d": {"path": "there"}}), "trainer submit")
    with pytest.raises(UserError, match="one machine runs at most 99"):
        Local().submit(make(tasks={"worker": 100}), "trainer submit")
    assert not Path("runs").exists()


def test_the_end_that_the_chief_has_saved_is_that_of_this_run(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that of an earlier one, whose state is still there if this one has failed before its chief began."""
    for name, last_line in (("another", "j failed: chief:0 ended with exit code 13"), ("", "nan")):
        save = f"""
from trainer.model_dir import state
state.save("runs/j", state.State(end=state.End("j", 13, "nan", {name!r} or os.environ["TRAINER_RUN"])))
sys.exit(13)
"""
        monkeypatch.setattr(launcher, "_LAST", {})
        command = [sys.executable, "-c", *stand_in(chief_0=save)[3:]]
        monkeypatch.setattr(launcher, "COMMAND", [sys.executable, "-c", LAUNCHER, json.dumps(command)])
        Local().submit(spec, "trainer submit")
        until(lambda: Local().status(Job("j", spec)).over)
        found = Local().status(Job("j", spec))
        assert found.code == 13
        assert (found.last_line or "").startswith(last_line)


def test_a_folder_is_not_removed(spec: JobSpec) -> None:
    with pytest.raises(UserError, match=r"^volumes: runs/j is a folder, and not removed with its job; remove it your"):
        Local().delete(Job("j", spec), volumes=True)


def test_a_job_that_never_was_cannot_be_deleted(spec: JobSpec) -> None:
    with pytest.raises(UserError, match=r"^runs/j: no job runs there on this machine; none was started"):
        Local().delete(Job("j", spec))


# A program that starts a job, and waits to be ended.
PROGRAM = """
import sys
from trainer.job.load import load_environment
from trainer.targets.local import launcher, target
launcher.COMMAND = sys.argv[2:]
target.Local(keep=sys.argv[1] == "keep").submit(load_environment(), "trainer submit")
print(launcher._LAST.popitem()[1].process.pid, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("keep", [False, True], ids=["ends", "kept"])
@pytest.mark.parametrize("kill", [False, True], ids=["exit", "SIGKILL"])
def test_a_job_ends_with_its_program_unless_it_is_to_be_kept(
    spec: JobSpec, keep: bool, kill: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks_are(monkeypatch, chief_0=WAITS, worker_0=WAITS, worker_1=WAITS, ps_0=WAITS)
    words = ["keep" if keep else "end", *launcher.COMMAND]
    environ = {**os.environ, "TRAINER_JOB": spec.model_dump_json(exclude_defaults=True)}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ
    ) as program:
        assert program.stdin
        assert program.stdout
        pid = int(program.stdout.readline())
        until(lambda: printed(spec, "ps:0 | here"))
        if kill:
            program.kill()
        program.stdin.close()
    # The stand-ins do not write the state of the chief, by which another program finds the launcher.
    monkeypatch.setattr(status, "launcher", lambda _: pid)
    if not keep:
        until(lambda: not host.started(pid))
        assert printed(spec, "stopped; the same command resumes")
        return
    assert output.written(spec.directory)
    Local().delete(Job("j", spec))
    assert not host.started(pid)
    assert not output.written(spec.directory)
