"""How the processes of a local job end, are restarted and are stopped; stand-ins are its tasks."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.unit.targets.local.stand_in import fifo, gone, make, stand_in, start, write_result
from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.targets.local import processes
from trainer.targets.local import run as local


def test_the_others_are_given_time_to_end_by_themselves(spec: JobSpec, capfd: pytest.CaptureFixture[str]) -> None:
    fifo("failed")
    chief = "leave_at_sigterm(143); open('failed').read(); say('ends by itself'); sys.exit(13)"
    code = local.run(spec, command=stand_in(chief_0=chief, worker_0="open('failed', 'w').close(); sys.exit(2)"))
    out, _ = capfd.readouterr()
    assert code in (2, 13), "whichever was first"
    assert "chief:0 | ends by itself\n" in out
    assert "SIGTERM seen" not in out


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


def test_a_task_killed_after_the_chiefs_success_changes_nothing(spec: JobSpec) -> None:
    fifo("done")
    worker = "if once('before'): open('done').read(); die()"
    tasks = {"chief_0": "os.open('done', os.O_WRONLY)", "worker_0": worker}
    assert local.run(spec, command=stand_in(**tasks)) == Exit.OK


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
    assert (
        f"; {line}; TensorFlow's output: runs/j/.trainer/logs; what to try: " in capfd.readouterr().err.splitlines()[-1]
    )


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


def test_a_process_that_keeps_the_pipes_does_not_keep_the_job(spec: JobSpec) -> None:
    assert local.run(spec, command=stand_in(chief_0="open('pid', 'w').write(str(os.fork() or forever()))")) == Exit.OK
    os.kill(int(Path("pid").read_text()), signal.SIGKILL)
