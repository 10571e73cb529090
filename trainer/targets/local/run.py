"""`trainer local`: runs a job's whole cluster as processes on this machine.

Every task is a `trainer task` process. This module assigns ports and CPU shares, and ends the processes in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainer import host
from trainer.job import code as job_code
from trainer.job import environment, named_code, program, secret
from trainer.job.cluster import Task, tasks_of
from trainer.job.derived import computing_tasks, has_ring
from trainer.job.errors import Exit, UserError
from trainer.job.messages import command_line
from trainer.job.names import control_port, task_name
from trainer.job.spec import JobSpec
from trainer.job.tracker import is_for_tracker, secrets_of_tasks
from trainer.model_dir import layout
from trainer.protocol.log_lines import FAILURE_MARK
from trainer.targets import machine
from trainer.targets.local import neighbours, output, ports, view
from trainer.targets.local.gpus import assign
from trainer.targets.local.output import Output
from trainer.targets.local.processes import ERROR_PREFIX, LocalJob, is_evaluator, keep_running, send
from trainer.targets.show import summary

TASK_COMMAND = host.command("trainer.cli.main", "task")
TRACK = "track"
TRACK_SECONDS = 600.0
"""Time for `trainer track` to send what is left after the job's end, such as a large model."""

FAILED_SECONDS = 5.0
"""How long the other tasks may take to end by themselves after a failure, notified by their chief."""
SUCCEEDED_SECONDS = 10.0
"""How long they may take after the chief's success. An evaluator has its own deadline for the last checkpoint, and
another one for its exporters."""
KILL_SECONDS = 2.0
"""Seconds between deadlines.stop and SIGKILL."""
LONGEST_REASON = 500
"""Characters of a failure's reason in the last line; the lines of its task have all."""


def run(
    spec: JobSpec,
    *,
    base_port: int | None = None,
    plain: bool = False,
    command: Sequence[str] = TASK_COMMAND,
) -> int:
    """Runs every task of a job until it is over, and prints how it ended.

    Args:
        base_port: the first TensorFlow port; default: a free block.
        plain: print prefixed lines, also on a terminal.
        command: runs a task; tests replace it.

    Returns:
        The exit code: that of the task that failed first, if one did.

    Raises:
        UserError: a port is in use, or as `require`.
    """
    require(spec)
    shared = {environment.SECRET: secret.new(), environment.RUN: os.environ.get(environment.RUN) or uuid.uuid4().hex}
    if spec.program:
        shared[environment.CODE_SHA256] = code_digest(spec)
        spec = _with_program(spec)
    kept = Output(spec.directory)
    with ports.reserve([task.name for task in tasks_of(spec)], base_port) as taken, contextlib.closing(kept):
        kept.line("local", output.started())
        job = asyncio.run(_run(spec, taken, shared, plain, command, kept))
        code, text = _verdict(job, spec)
        for name, end in job.ends.items():
            kept.line("local", output.task_ended(name, end.code))
        kept.line("local", output.ended(code, text))
    if code == Exit.OK:
        text = summary.summary(spec.directory)
    elif code != Exit.STOPPED:
        what = "stderr of the programs" if spec.program else "TensorFlow's output"
        debug = command_line([summary.program("trainer") or "trainer", "debug", spec.directory], [])
        text = f"trainer: {text}; {what}: {layout.logs(spec.directory)}; what to try: {debug}"
    with contextlib.suppress(BrokenPipeError):
        print(text, file=sys.stdout if code in (Exit.OK, Exit.STOPPED) else sys.stderr, flush=True)
    return code


def require(spec: JobSpec) -> None:
    """Checks what a job needs of this machine, before any task starts.

    Raises:
        UserError: one of the spec's secrets or folders of data is missing, a program cannot be started, the code holds
            model_dir, or there are too many tasks for one machine.
    """
    machine.require_data(spec)
    machine.require_dataset(spec)
    if spec.program:
        _with_program(spec)
    else:
        job_code.require_no_output(spec)
    machine.secret_values(spec)
    ports.require_room(len(tasks_of(spec)))


def _with_program(spec: JobSpec) -> JobSpec:
    """The spec for tasks on this machine: the program runs where it is.

    Raises:
        UserError: a program cannot be started.
    """
    python = str(Path(spec.python).absolute()) if spec.python else sys.executable
    if not (Path(python).is_file() and os.access(python, os.X_OK)):
        raise UserError(f"python: {spec.python!r}: is no interpreter that can be executed")
    spec_here = spec.model_copy(update={"python": python, "working_dir": str(program.folder(spec)), "code": []})
    for task_type in spec.tasks.counts():
        program.command(spec_here, spec_here.program_of(task_type), program.environ(spec_here, task_type, os.environ))
    return spec_here


def code_digest(spec: JobSpec) -> str:
    """Digest of a program's code, of which a result tells whether the job is complete. Unknown code has another one at
    each start, so that its program always runs."""
    return named_code.digest(spec, os.environ) or secret.new()


def environment_of(spec: JobSpec, task: Task, taken: Mapping[str, int]) -> dict[str, str]:
    """The environment of a task's process: ours and the task's own variables."""
    of_tasks = secrets_of_tasks(spec)
    # --set and TRAINER_SET are in the spec; `trainer local` may run in any pod.
    replaced = {environment.SET, environment.CPUS, environment.CONTROL_PORT, environment.HANDS_OVER}
    replaced |= spec.secrets.keys() - of_tasks.keys()
    environ = {key: value for key, value in os.environ.items() if key not in replaced}
    environ |= {
        "TF_CONFIG": task.tf_config(),
        environment.JOB: spec.model_dump_json(exclude_defaults=True),
        environment.PARENT: str(os.getpid()),
        **{name: value for name, value in machine.secret_values(spec).items() if name in of_tasks},
        "PYTHONUNBUFFERED": "1",
    }
    group, counts = spec.tasks.group(task.type), spec.tasks.counts()
    if group is None or group.cpu is None:
        # A coordinator computes only after the workers: the final evaluation.
        alone = task.type == "chief" and spec.traits.coordinated
        sharing = 1 if alone else computing_tasks(spec, counts)
        environ[environment.CPUS] = str(max(1, host.available_cpus() // sharing))
    environ.setdefault("NCCL_SOCKET_IFNAME", "lo")  # the default is the first interface, open to other machines
    if task.type == "evaluator":  # TF_CONFIG never names its address
        environ[environment.CONTROL_PORT] = str(control_port(taken[task.name]))
    return environ


async def _run(
    spec: JobSpec,
    taken: Mapping[str, int],
    shared: Mapping[str, str],
    plain: bool,
    command: Sequence[str],
    kept: Output,
) -> LocalJob:
    tasks = tasks_of(spec, lambda task_type, index: f"127.0.0.1:{taken[task_name(task_type, index)]}")
    tasks.sort(key=lambda task: not task.is_chief)  # it imports TensorFlow, which takes longest: it starts first
    job = LocalJob(tasks[0].name, [task.name for task in tasks])
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, job.stop)
    status_port = control_port(taken[job.chief])
    async with view.open_view(spec, job.names, status_port, job.restarts, job.stop, plain) as show:
        job.show = kept.also(show)
        words = [summary.program("trainer") or "trainer", "status", spec.directory]
        if spec.page != "none":
            job.show("local", f"page: http://localhost:{status_port}/")
        job.show("local", f"status: {shlex.join(words)}")
        has_ports = len(tasks) > 1 and not has_ring(spec, tasks[0].counts)
        if has_ports and (found := neighbours.other_user()):
            job.show("local", neighbours.warning(*found))
        shared = {**shared, FAILURE_MARK: job.mark}
        gpus, sharing = assign(spec, tasks)
        if sharing:
            job.show("local", sharing)
        environs = {
            task.name: {**environment_of(spec, task, taken), **shared, **gpus.get(task.name, {})} for task in tasks
        }
        runs = [asyncio.create_task(keep_running(job, name, command, environ)) for name, environ in environs.items()]
        beside = LocalJob(TRACK, [TRACK], job.show)  # no task: its end changes nothing
        if spec.tracking:
            tracker = host.command("trainer.cli.main", "track", "--keep", spec.directory)
            runs.append(asyncio.create_task(keep_running(beside, TRACK, tracker, _environment_of_tracker(spec))))
        try:
            await _until_the_end(job, spec)
            if spec.tracking:
                await _until_all_is_sent(beside)
        finally:
            for each in (job, beside):
                each.no_more_restarts()
                send(each.alive.values(), signal.SIGKILL)
            await asyncio.gather(*runs)
    return job


def _environment_of_tracker(spec: JobSpec) -> dict[str, str]:
    given = {**spec.env, **machine.secret_values(spec)}
    return {
        **{name: value for name, value in os.environ.items() if name not in (environment.SET, environment.JOB)},
        **{name: value for name, value in given.items() if is_for_tracker(name)},
        environment.PARENT: str(os.getpid()),
        "PYTHONUNBUFFERED": "1",
    }


async def _until_all_is_sent(beside: LocalJob) -> None:
    """Waits until `trainer track` has sent what is left, or has given up."""
    beside.no_more_restarts()
    send(beside.alive.values(), signal.SIGTERM)
    await beside.until(lambda: beside.ends, TRACK_SECONDS)
    if not beside.ends:
        beside.show("local", f"{TRACK} did not end within {TRACK_SECONDS:g} s, killing it")


async def _until_the_end(job: LocalJob, spec: JobSpec) -> None:
    """Waits for the job's end, then for the tasks to end by themselves, then kills the rest."""
    await job.until(lambda: job.stopped or job.chief in job.ends or job.failed())
    job.no_more_restarts()
    # A program may take until deadlines.stop to end.
    stopping = spec.deadlines.stop + KILL_SECONDS if spec.program else 0.0
    if spec.notify:  # the chief reports the end
        stopping += spec.deadlines.notify
    if job.chief in job.ends and job.ends[job.chief].code == Exit.OK:
        evaluators = [name for name in job.names if is_evaluator(name)]
        await job.until_ended(set(job.names) - set(evaluators), SUCCEEDED_SECONDS + stopping)
        patience = 2 * spec.deadlines.evaluation + spec.deadlines.start + SUCCEEDED_SECONDS
        await job.until_ended(evaluators, patience)
        if not job.stopped:
            # A task that was stopped by a signal cannot end by itself, and the job has ended without it.
            job.overdue = [name for name, process in job.alive.items() if not host.is_stopped(process.pid)]
    else:
        await job.until_ended(job.names, FAILED_SECONDS + stopping)
    send(job.alive.values(), signal.SIGTERM)
    patience = spec.deadlines.stop + KILL_SECONDS
    await job.until(lambda: len(job.ends) == len(job.names), patience)
    for name in job.alive:
        job.show("local", f"{name} did not end within {patience:g} s of SIGTERM, killing it")


def _verdict(job: LocalJob, spec: JobSpec) -> tuple[int, str]:
    """The job's exit code and, if it did not succeed, why in one line."""
    if failed := job.failed():
        name = job.root_cause()
        stop = f"; {job.stop_report}" if job.stop_report else ""
        reason = f": {reason}" if (reason := _reason(job, name)) else ""
        return failed[name].code, f"{spec.name} failed: {name} {failed[name].how}{reason}{stop}"
    if job.overdue:
        return int(Exit.BUG), f"{spec.name}: the chief succeeded, but {', '.join(job.overdue)} had to be killed"
    if job.stopped and job.ends[job.chief].code:  # a stop that came after its success ends the other tasks alone
        return int(Exit.STOPPED), job.stop_report or "stopped; the same command resumes"
    return int(Exit.OK), ""


def _reason(job: LocalJob, name: str) -> str:
    """Why a task failed, in its own words or in those of the chief, in one line; empty if there are none."""
    lines = [line.removeprefix(ERROR_PREFIX) for line in job.errors[name] or job.errors[job.chief]]
    text = "; ".join(lines).removeprefix(f"{name}: ")
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}..."
