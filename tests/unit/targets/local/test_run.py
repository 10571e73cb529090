"""`trainer local` with stand-ins for its tasks: real processes that run, fail and misbehave as scripted."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.job import code, environment
from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit, UserError
from trainer.job.load import build, load_environment
from trainer.job.spec import JobSpec
from trainer.job.tf_config import from_environment
from trainer.model_dir import result
from trainer.model_dir.result import Result, Training
from trainer.targets.local import ports, processes
from trainer.targets.local import run as local

# A stand-in runs the code that its first argument, an object in JSON, holds for its name; without any it succeeds.
STAND_IN = """
import json, os, signal, sys, time
task = json.loads(os.environ["TF_CONFIG"])["task"]
name = f"{task['type']}:{task['index']}"
def say(text): print(text, flush=True)
def report(text): print(os.environ["TRAINER_FAILURE_MARK"] + "trainer: " + text, file=sys.stderr, flush=True)
def once(what):  # whether it is the first time, over all processes
    try: os.mkdir(what)
    except FileExistsError: return False
    return True
def die(): os.kill(os.getpid(), signal.SIGKILL)
def leave_at_sigterm(code):  # leave with this code at SIGTERM
    signal.signal(signal.SIGTERM, lambda *_: (say("SIGTERM seen"), os._exit(code)))
def forever():
    while True: signal.pause()
exec(json.loads(sys.argv[1]).get(name, ""))
"""


def stand_in(**tasks: str) -> list[str]:
    """A task command; `worker_1="die()"` is what worker:1 does."""
    return [sys.executable, "-S", "-c", STAND_IN, json.dumps({k.replace("_", ":"): v for k, v in tasks.items()})]


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JobSpec:
    """Of chief:0, worker:0, worker:1 and ps:0, to be run in its own folder, with short waits."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(processes, "BACKOFF_SECONDS", (0.01,))
    return make()


def make(**more: Any) -> JobSpec:
    tasks = {"ps": 1, "worker": 2, **more.pop("tasks", {})}
    return build({"name": "j", "strategy": "parameter_server", "workload": "digits", "tasks": tasks, **more})


def fifo(name: str) -> None:
    """For one process to wait for another: `open(name).read()` and `open(name, "w")` meet."""
    os.mkfifo(name)


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def write_result(*warnings: str) -> None:
    """As the chief leaves it."""
    Path("runs/j").mkdir(parents=True)
    training = Training(1000, {"accuracy": 0.9712}, None, None, {}, None, None)
    result.write("runs/j", Result("j", "one_device", training, 3.5, 1, [*warnings], {}, [], {}, {}, {}))


def test_a_program_s_tasks_get_the_digest_of_its_code(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    """By it a job that is complete is told from one whose code has changed since."""
    (folder := Path("code")).mkdir()
    program = {"name": "p", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, "code": [str(folder)]}
    say = 'say("digest " + os.environ["TRAINER_CODE_SHA256"]); sys.exit(2)'

    def digest() -> str:
        local.run(build({**program, "program": ["true"]}), command=stand_in(worker_0=say, worker_1=say))
        found = set(re.findall(r"digest (\S+)", capfd.readouterr().out))
        assert len(found) == 1, "the same in all tasks"
        return str(found.pop())

    (folder / "train.py").write_text("x = 1")
    first = digest()
    assert digest() == first
    (folder / "train.py").write_text("x = 2")
    second = digest()
    assert second != first
    with (folder / "weights").open("wb") as file:
        file.truncate(code.LARGEST + 1)
    assert digest() != digest(), "too much to read: never taken for complete"


def test_a_program_is_looked_for_where_its_task_will_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folders that `env` adds to PATH, and beside `python`, whose environment may have the command."""
    monkeypatch.chdir(tmp_path)
    for name in ("bin/python", "bin/beside", "more/added"):
        (path := tmp_path / name).parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n")
        path.chmod(0o755)
    program = {"name": "p", "strategy": "multi_worker_mirrored", "code": [], "python": "bin/python"}
    env = {"MORE": str(tmp_path / "more"), "PATH": "$(PATH):$(MORE)"}
    for word in ("beside", "added"):
        assert local.run(build({**program, "program": [word], "env": env}), command=stand_in()) == Exit.OK
    with pytest.raises(UserError, match=r"program: 'absent': no such command in PATH \(.*bin:.*more\)"):
        local.run(build({**program, "program": ["absent"], "env": env}), command=stand_in())


# Its end. ---------------------------------------------------------------------------------------------


def test_a_job_of_tasks_that_succeed(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    write_result()
    code = local.run(spec, command=stand_in(worker_1='say("hello"); sys.exit(0)'))
    out, err = capfd.readouterr()
    assert code == Exit.OK
    assert "worker:1 | hello\n" in out
    assert err == ""
    reported = {line.split("  ")[0]: line.split("  ")[-1].strip() for line in out.splitlines() if "  " in line}
    assert (reported["status"], reported["steps"], reported["test_accuracy"]) == ("succeeded", "1,000", "0.9712")
    assert reported["result"] == "runs/j/result.json"


@pytest.mark.parametrize("code", [Exit.USER, Exit.MISSING, Exit.BUG, 3])
def test_a_permanent_failure_ends_the_job_with_its_code(
    spec: JobSpec, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(local, "FAILED_SECONDS", 0.0)
    fifo("ready")
    failing = f"open('ready').read(); report('no such thing'); sys.exit({int(code)})"
    chief = "leave_at_sigterm(143); open('ready', 'w').close(); forever()"
    assert local.run(spec, command=stand_in(worker_0=failing, chief_0=chief)) == code
    out, err = capfd.readouterr()
    assert "chief:0 | SIGTERM seen\n" in out
    assert "restarting it" not in out
    assert "worker:0 | trainer: no such thing\n" in err
    last = err.splitlines()[-1]
    assert last.startswith(f"trainer: j failed: worker:0 ended with exit code {int(code)}")
    assert last.endswith("; TensorFlow's output: runs/j/logs")
    assert "(" not in last, "the task has explained its failure"


def test_an_exit_code_that_no_line_explains_comes_with_its_meaning(
    spec: JobSpec, capfd: pytest.CaptureFixture[str]
) -> None:
    assert local.run(spec, command=stand_in(chief_0="sys.exit(12)")) == Exit.DEVICES
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith(f"trainer: j failed: chief:0 ended with exit code 12 ({Exit.DEVICES.meaning}); ")


def test_a_failure_that_each_task_reports_is_printed_once(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    report = "report('worker:1: a'); report('worker:1: b'); sys.exit(2)"
    own = "report('no memory'); " + report
    assert local.run(spec, command=stand_in(chief_0=report, worker_0=report, worker_1=report, ps_0=own)) == 2
    *lines, last = sorted(line.partition(" | ")[2] or line for line in capfd.readouterr().err.splitlines())
    assert lines == ["trainer: j failed: worker:1 ended with exit code 2; TensorFlow's output: runs/j/logs",
                     "trainer: no memory", "trainer: worker:1: a"]  # fmt: skip
    assert last == "trainer: worker:1: b"


def test_a_program_s_lines_are_no_failures_of_its_task(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    """A logger of the user may be named trainer. A line may be unfinished when the task reports its failure."""
    fifo("logged")
    logs = "print('trainer: worker:0: epoch 1', 'trainer: worker:0: epoch 1', sep='\\n', file=sys.stderr)"
    tasks = {
        "chief_0": f"{logs}; open('logged', 'w').close(); report('worker:1: no rows'); sys.exit(18)",
        "worker_0": "open('logged').read(); sys.exit(18)",
        "worker_1": f"{logs}; sys.stderr.write('50%'); report('worker:1: no rows'); sys.exit(18)",
    }
    assert local.run(spec, command=stand_in(**tasks)) == 18
    *lines, last = capfd.readouterr().err.splitlines()
    assert lines.count("chief:0 | trainer: worker:0: epoch 1") == 2
    assert lines.count("worker:1 | trainer: worker:0: epoch 1") == 2
    assert "worker:1 | 50%" in lines
    assert sum(line.endswith(" | trainer: worker:1: no rows") for line in lines) == 1
    assert last.startswith("trainer: j failed: worker:1 ended with exit code 18; ")


def test_a_verdict_without_a_task_names_the_chief(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    fifo("over")
    tasks = {
        "worker_0": "os.open('over', os.O_WRONLY); sys.exit(14)",
        "chief_0": "open('over').read(); report('4 generations without a step'); sys.exit(14)",
    }
    assert local.run(spec, command=stand_in(**tasks)) == 14
    assert "trainer: j failed: chief:0 ended with exit code 14; " in capfd.readouterr().err.splitlines()[-1]


def test_the_others_are_given_time_to_end_by_themselves(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    fifo("failed")
    chief = "leave_at_sigterm(143); open('failed').read(); say('ends by itself'); sys.exit(13)"
    code = local.run(spec, command=stand_in(chief_0=chief, worker_0="open('failed', 'w').close(); sys.exit(2)"))
    out, _ = capfd.readouterr()
    assert code in (2, 13), "whichever was first"
    assert "chief:0 | ends by itself\n" in out
    assert "SIGTERM seen" not in out


def test_the_first_failure_is_the_one_that_the_chief_names_whichever_task_ends_first(
    spec: JobSpec, capfd: pytest.CaptureFixture[str]
) -> None:
    fifo("first")
    fifo("second")
    tasks = {
        "ps_0": "open('first', 'w').close(); sys.exit(2)",
        "worker_0": "open('first').read(); open('second', 'w').close(); report('worker:0: x'); sys.exit(2)",
        "chief_0": "open('second').read(); report('worker:0: x'); sys.exit(2)",
    }
    assert local.run(spec, command=stand_in(**tasks)) == 2
    assert "trainer: j failed: worker:0 ended with exit code 2; " in capfd.readouterr().err.splitlines()[-1]


def test_the_code_of_the_first_failure_counts(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "FAILED_SECONDS", 0.0)
    fifo("ready")
    tasks = {"worker_0": "open('ready').read(); sys.exit(13)",
             "chief_0": "leave_at_sigterm(12); open('ready', 'w').close(); forever()"}  # fmt: skip
    assert local.run(spec, command=stand_in(**tasks)) == 13


def test_a_task_that_does_not_end_after_the_chiefs_success_is_killed_and_named(
    capfd: pytest.CaptureFixture[str], spec: JobSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SUCCEEDED_SECONDS", "KILL_SECONDS"):
        monkeypatch.setattr(local, name, 0.05)
    spec = make(deadlines={"stop": 0.05, "start": 0.05})
    fifo("ready")
    stubborn = "signal.signal(signal.SIGTERM, signal.SIG_IGN); open('pid', 'w').write(str(os.getpid())); "
    stubborn += "open('ready', 'w').close(); forever()"
    assert local.run(spec, command=stand_in(chief_0="open('ready').read()", worker_1=stubborn)) == Exit.BUG
    out, err = capfd.readouterr()
    assert "local | worker:1 did not end within 0.1 s of SIGTERM, killing it\n" in out
    # On a busy machine successful tasks may be late as well.
    assert re.search("^trainer: j: the chief succeeded, but .*worker:1.* had to be killed", err)
    assert gone(int(Path("pid").read_text()))


def test_an_evaluator_has_more_time_after_the_chiefs_success(
    spec: JobSpec, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "SUCCEEDED_SECONDS", 0.0)
    fifo("done")
    # The end of the chief's process closes the pipe: only then does the evaluator go on.
    tasks = {"worker_0": "os.open('done', os.O_WRONLY)", "evaluator_0": "open('done').read(); say('scored the last')"}
    alone = build({"name": "j", "strategy": "one_device", "workload": "digits", "tasks": {"worker": 1, "evaluator": 1}})
    assert local.run(alone, command=stand_in(**tasks)) == Exit.OK
    assert "evaluator:0 | scored the last\n" in capfd.readouterr().out


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_evaluator_that_fails_does_not_end_the_job_nor_change_its_code(
    spec: JobSpec, capfd: pytest.CaptureFixture[str], when: str
) -> None:
    fifo("over")
    first, second = "os.open('over', os.O_WRONLY)", "open('over').read()"
    chief, evaluator = (first, second) if when == "after" else (second, first)
    write_result("evaluator:0: too slow")
    tasks = {"chief_0": chief, "evaluator_0": f"{evaluator}; sys.exit(17)"}
    assert local.run(make(tasks={"evaluator": 1}), command=stand_in(**tasks)) == Exit.OK
    out, _ = capfd.readouterr()
    assert "local | evaluator:0 ended with exit code 17 (the last checkpoint was not scored" in out
    assert ["warning", "evaluator:0:", "too", "slow"] in [line.split() for line in out.splitlines()]


def test_a_task_killed_after_the_chiefs_success_changes_nothing(spec: JobSpec) -> None:
    fifo("done")
    worker = "if once('before'): open('done').read(); die()"
    tasks = {"chief_0": "os.open('done', os.O_WRONLY)", "worker_0": worker}
    assert local.run(spec, command=stand_in(**tasks)) == Exit.OK


# Restarts. --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "reported"),
    [
        ("die()", "was killed by signal 9 (SIGKILL)"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "was killed by signal 11 (SIGSEGV)"),
        ("os.kill(os.getpid(), signal.SIGRTMIN + 1)", "was killed by signal 35"),
        ("sys.exit(15)", "ended with exit code 15 (no reply from the chief for deadlines.chief_lost, or none since"),
        ("sys.exit(143)", "ended with exit code 143 (stopped by SIGTERM or Ctrl-C; "),
        ("sys.exit(137)", "ended with exit code 137, restarting"),
    ],
)
@pytest.mark.parametrize("victim", ["worker_1", "chief_0"])
def test_a_killed_task_is_restarted(
    spec: JobSpec, capfd: pytest.CaptureFixture[str], victim: str, end: str, reported: str
) -> None:
    others = {"chief_0", "ps_0"} - {victim}
    for each in others:
        fifo(each)  # one for each reader: a second one may come when the writer is gone
    tasks = {each: f"open('{each}').read()" for each in others}
    tasks[victim] = f"if once('before'): {end}\nfor each in {sorted(others)}: open(each, 'w').close()"
    assert local.run(spec, command=stand_in(**tasks)) == Exit.OK
    out, _ = capfd.readouterr()
    *_, line = [line for line in out.splitlines() if line.startswith("local | ")]
    assert line.startswith(f"local | {victim.replace('_', ':')} {reported}")
    assert line.endswith(", restarting it")


def test_a_task_that_is_killed_repeatedly_ends_the_job(
    spec: JobSpec, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MAX_RESTARTS", 2)
    monkeypatch.setattr(local, "FAILED_SECONDS", 0.0)
    code = local.run(spec, command=stand_in(worker_0="say('here'); die()", chief_0="forever()"))
    out, err = capfd.readouterr()
    assert code == Exit.GAVE_UP
    assert out.count("worker:0 | here") == 3
    assert "trainer: j failed: worker:0 was killed by signal 9 (SIGKILL) 3 times in a row" in err


def test_a_long_life_begins_a_new_row(
    spec: JobSpec, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "MAX_RESTARTS", 1)
    monkeypatch.setattr(processes, "LONG_LIFE_SECONDS", 0.0)
    fifo("fourth")
    worker = "if once('1') or once('2') or once('3'): die()\nopen('fourth', 'w').close()"
    assert local.run(spec, command=stand_in(worker_0=worker, chief_0="open('fourth').read()")) == Exit.OK
    assert capfd.readouterr().out.count("restarting it") == 3


def test_a_command_that_cannot_be_run(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    assert local.run(spec, command=["./no-such-program"]) == Exit.BUG
    assert "trainer: j failed: chief:0 could not be started: No such file or directory" in capfd.readouterr().err


# Stopped from outside. --------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_forwarded_and_no_task_is_restarted(
    spec: JobSpec, capfd: pytest.CaptureFixture[str], number: signal.Signals
) -> None:
    fifo("ready")
    tasks = {
        "chief_0": f"leave_at_sigterm(143); open('ready').read(); os.kill(os.getppid(), {int(number)}); forever()",
        "worker_0": "leave_at_sigterm(143); open('ready', 'w').close(); forever()",
        "evaluator_0": "leave_at_sigterm(143); forever()",
    }
    assert local.run(make(tasks={"evaluator": 1}), command=stand_in(**tasks)) == Exit.STOPPED
    out, err = capfd.readouterr()
    reported = sorted(line for line in out.splitlines() if "SIGTERM seen" in line)
    assert [line for line in reported if "evaluator" not in line] == [
        "chief:0 | SIGTERM seen",
        "worker:0 | SIGTERM seen",
    ]
    assert "evaluator:0 ended" not in out, "it was stopped, as all were"
    assert out.endswith("stopped; the same command resumes\n")
    assert "restarting it" not in out
    assert err == ""


def test_a_job_that_is_complete_when_it_is_stopped_has_succeeded(
    spec: JobSpec, capfd: pytest.CaptureFixture[str]
) -> None:
    write_result()
    fifo("ready")
    tasks = {
        "chief_0": "signal.signal(signal.SIGTERM, signal.SIG_IGN); open('ready').read(); "
        "os.kill(os.getppid(), signal.SIGTERM)",
        "ps_0": "leave_at_sigterm(143); open('ready', 'w').close(); forever()",
    }
    assert local.run(spec, command=stand_in(**tasks)) == Exit.OK
    out, _ = capfd.readouterr()
    assert "ps:0 | SIGTERM seen" in out
    assert re.search(r"^status +succeeded$", out, re.MULTILINE)
    assert "resumes" not in out


def test_the_tasks_lines_about_a_stop_are_printed_once(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    fifo("ready")
    line = "stopped by a signal; the checkpoint of step 617 is kept; the same command resumes"
    leave = f"signal.signal(signal.SIGTERM, lambda *_: (say('SIGTERM seen'), say('{line}'), os._exit(143))); "
    tasks = {
        "chief_0": f"{leave}open('ready').read(); os.kill(os.getppid(), signal.SIGINT); forever()",
        "ps_0": f"{leave}open('ready', 'w').close(); forever()",
    }
    assert local.run(spec, command=stand_in(**tasks)) == Exit.STOPPED
    out, _ = capfd.readouterr()
    assert {"chief:0 | SIGTERM seen", "ps:0 | SIGTERM seen"} <= set(out.splitlines())
    assert [each for each in out.splitlines() if "stopped" in each] == [line]


def test_the_line_about_a_stop_is_printed_if_a_task_fails_meanwhile(
    spec: JobSpec, capfd: pytest.CaptureFixture[str]
) -> None:
    fifo("ready")
    line = "stopped by a signal; the checkpoint of step 617 is kept; the same command resumes"
    tasks = {
        "chief_0": f"signal.signal(signal.SIGTERM, lambda *_: (say('{line}'), os._exit(143))); "
        "open('ready').read(); os.kill(os.getppid(), signal.SIGINT); forever()",
        "ps_0": "leave_at_sigterm(1); open('ready', 'w').close(); forever()",
    }
    assert local.run(spec, command=stand_in(**tasks)) == Exit.BUG
    assert capfd.readouterr().err.endswith(f"; {line}; TensorFlow's output: runs/j/logs\n")


def test_a_chief_that_another_program_stops_keeps_its_line(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    chief = "if once('before'): say('stopped by a signal; no checkpoint was written yet'); sys.exit(143)"
    assert local.run(spec, command=stand_in(chief_0=chief)) == Exit.OK
    assert "chief:0 | stopped by a signal; no checkpoint" in capfd.readouterr().out


def test_a_task_that_ignores_sigterm_is_killed(
    spec: JobSpec, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "KILL_SECONDS", 0.05)
    chief = "signal.signal(signal.SIGTERM, signal.SIG_IGN); open('pid', 'w').write(str(os.getpid())); "
    chief += "os.kill(os.getppid(), signal.SIGTERM); forever()"
    assert local.run(make(deadlines={"stop": 0.05}), command=stand_in(chief_0=chief)) == Exit.STOPPED
    assert "local | chief:0 did not end within 0.1 s of SIGTERM, killing it\n" in capfd.readouterr().out
    assert gone(int(Path("pid").read_text()))


def test_a_signal_ends_the_wait_before_a_restart(spec: JobSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "BACKOFF_SECONDS", (600.0,))
    fifo("dead")
    tasks = {"worker_0": "os.open('dead', os.O_WRONLY); die()",
             "chief_0": "open('dead').read(); os.kill(os.getppid(), signal.SIGTERM); forever()"}  # fmt: skip
    assert local.run(spec, command=stand_in(**tasks)) == Exit.STOPPED


RUN = """
import sys
from trainer.targets.local import run as local
from trainer.job.load import load_environment
sys.exit(local.run(load_environment(), command=sys.argv[1:]))
"""


def start(spec: JobSpec, command: list[str], **more: Any) -> subprocess.Popen[str]:
    """A local job in a process of its own."""
    environ = {**os.environ, environment.JOB: spec.model_dump_json(exclude_defaults=True), **more.pop("env", {})}
    return subprocess.Popen([sys.executable, "-c", RUN, *command], env=environ, text=True, **more)


def test_the_job_stops_when_its_output_has_no_reader(spec: JobSpec) -> None:
    chief = "leave_at_sigterm(143)\nwhile True: say('more')"
    process = start(spec, stand_in(chief_0=chief), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    for name in ("page", "status"):
        assert process.stdout.readline().startswith(f"local | {name}: ")
    assert process.stdout.readline() == "chief:0 | more\n"
    process.stdout.close()
    assert process.wait(30) == Exit.STOPPED
    assert process.stderr.read() == ""
    process.stderr.close()


def test_no_exit_code_is_lost_to_a_signal_that_comes_at_the_end() -> None:
    """asyncio's own send_signal() loses a quarter of them."""

    async def exit_code() -> int | None:
        process = await asyncio.create_subprocess_exec("/bin/sh", "-c", "exit 7")
        while process.returncode is None:
            processes.send([process], signal.SIGCONT)
            await asyncio.sleep(0)
        return process.returncode

    async def exit_codes() -> list[int | None]:
        return [await exit_code() for _ in range(50)]

    assert asyncio.run(exit_codes()) == [7] * 50


# What tasks print and find. ---------------------------------------------------------------------------


def test_any_output_becomes_lines(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    long = processes._LINE_LIMIT + 5
    chief = rf"os.write(1, b'one\ntw\xffo\r\n\n'); print('x' * {long}); sys.stdout.write('no end')"
    assert local.run(spec, command=stand_in(chief_0=chief)) == Exit.OK
    lines = [line for line in capfd.readouterr().out.splitlines() if line.startswith("chief:0 | ")]
    lines = [line.removeprefix("chief:0 | ") for line in lines]
    assert lines[:3] == ["one", "tw\N{REPLACEMENT CHARACTER}o", ""]
    assert lines[-1] == "no end"
    assert sum(line.count("x") for line in lines) == long


def test_a_process_that_keeps_the_pipes_does_not_keep_the_job(spec: JobSpec) -> None:
    assert local.run(spec, command=stand_in(chief_0="open('pid', 'w').write(str(os.fork() or forever()))")) == Exit.OK
    os.kill(int(Path("pid").read_text()), signal.SIGKILL)


MIRRORED = {"name": "j", "strategy": "multi_worker_mirrored"}


@pytest.mark.parametrize(
    "raw",
    [
        {**MIRRORED, "tasks": {"chief": 1, "worker": {"replicas": 2, "cpu": 1.5, "memory": "2Gi"}, "evaluator": 1}},
        {**MIRRORED, "workload": "wörk flow.py", "dataset": "my.npz", "dataset_sha256": "0" * 64, "model_dir": "a b"},
        {**MIRRORED, "train": {"epochs": 3, "global_batch_size": 10, "learning_rate": 1e-7}, "warm_standby": False},
        {"name": "j", "strategy": "parameter_server", "tasks": {"ps": 1}, "deadlines": {"stop": 1}},
    ],
)
def test_every_task_finds_its_job_and_its_place(monkeypatch: pytest.MonkeyPatch, raw: dict[str, Any]) -> None:
    monkeypatch.setenv("TRAINER_SET", "train.steps=7")
    monkeypatch.setenv("TRAINER_CONTROL_PORT", "1")
    spec = build(raw)
    taken = {task.name: 20_000 + i for i, task in enumerate(tasks_of(spec))}
    for task in tasks_of(spec, lambda task_type, index: f"127.0.0.1:{taken[f'{task_type}:{index}']}"):
        environ = local.environment_of(spec, task, taken)
        assert load_environment(environ) == spec
        assert from_environment(spec, environ) == task
        assert environ["TRAINER_PARENT"] == str(os.getpid())
        assert environ["PATH"] == os.environ["PATH"]
        control = str(taken[task.name] + 1000) if task.type == "evaluator" else None
        assert environ.get("TRAINER_CONTROL_PORT") == control


@pytest.mark.parametrize(
    ("raw", "shares"),
    [
        ({**MIRRORED, "tasks": {"chief": 1, "worker": 2}}, {"chief:0": "2", "worker:0": "2", "worker:1": "2"}),
        ({**MIRRORED, "tasks": {"worker": 9}}, {f"worker:{i}": "1" for i in range(9)}),
        ({**MIRRORED, "tasks": {"worker": {"replicas": 2, "cpu": 3}}}, {"worker:0": None, "worker:1": None}),
        (
            {"name": "j", "strategy": "parameter_server", "tasks": {"ps": 1, "worker": 3}},
            {"chief:0": "7", "worker:0": "2", "worker:1": "2", "worker:2": "2", "ps:0": "2"},
        ),
    ],
)
def test_tasks_that_compute_share_the_cores(
    monkeypatch: pytest.MonkeyPatch, raw: dict[str, Any], shares: dict[str, str | None]
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(7)))
    monkeypatch.setenv("TRAINER_CPUS", "64")
    spec = build(raw)
    environs = {task.name: local.environment_of(spec, task, {}) for task in tasks_of(spec)}
    assert {name: environ.get("TRAINER_CPUS") for name, environ in environs.items()} == shares


def test_the_given_ports_are_used(spec: JobSpec, free_ports: Callable[[int], int]) -> None:
    base = free_ports(4)
    write = "open(name, 'w').write(os.environ['TF_CONFIG'])"
    tasks = {"chief_0": write, "worker_0": write, "worker_1": write, "ps_0": write}
    assert local.run(spec, base_port=base, command=stand_in(**tasks)) == Exit.OK
    cluster = json.loads(Path("ps:0").read_text())["cluster"]
    assert cluster == {
        "chief": [f"127.0.0.1:{base}"],
        "worker": [f"127.0.0.1:{base + 1}", f"127.0.0.1:{base + 2}"],
        "ps": [f"127.0.0.1:{base + 3}"],
    }


@pytest.fixture
def free_ports() -> Callable[[int], int]:
    def find(count: int) -> int:
        with ports.reserve([str(i) for i in range(count)]) as taken:
            return taken["0"]

    return find
