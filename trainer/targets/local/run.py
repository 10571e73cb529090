"""`trainer local`: a job's whole cluster as processes of this machine.

Every task is a `trainer task` process. Ports, processor shares and a restart for whoever was killed come from here.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from trainer.job import environment, secret
from trainer.job.derived import computing_tasks
from trainer.job.errors import Exit
from trainer.job.names import control_port, task_name
from trainer.job.spec import JobSpec
from trainer.job.tf_config import Task, tasks_of
from trainer.targets import outside, view
from trainer.targets.local import ports

ERROR_PREFIX = "trainer: "
"""Of the one line in which a task says why it failed."""
TASK_COMMAND = (sys.executable, "-m", "trainer", "task")

MAX_RESTARTS = 20
"""Of one task in a row. A task that lived for LONG_LIFE_SECONDS begins a new row, and its back-off too."""
LONG_LIFE_SECONDS = 30.0
BACKOFF_SECONDS = (0.2, 0.4, 0.8, 1.6, 3.2, 5.0)
FAILED_SECONDS = 5.0
"""After a failure, for the others to hear of it from their chief and end by themselves."""
SUCCEEDED_SECONDS = 10.0
"""After the chief's success, likewise. An evaluator keeps a deadline of its own for the last checkpoint, and then as
long for its exporters."""
KILL_SECONDS = 2.0
"""On top of deadlines.stop, before a task that was told to stop is killed."""
LAST_LINES_SECONDS = 0.5
"""After a task's end: a process of the user's own may have inherited its pipes and keep them open."""
_LINE_LIMIT = 1 << 20


def run(
    spec: JobSpec,
    *,
    base_port: int | None = None,
    plain: bool = False,
    check: str = "trainer check SPEC",
    command: Sequence[str] = TASK_COMMAND,
) -> int:
    """Runs every task of a job until it is over, and says how it ended.

    Args:
        base_port: the first TensorFlow port; default a block that is free.
        plain: prefixed lines, also on a terminal.
        check: the command to suggest for a look at the spec.
        command: what runs a task; tests have their own.

    Returns:
        The exit code: that of the task that failed first, if one did.

    Raises:
        UserError: a port is in use, one of the spec's secrets is missing, or there are too many tasks for one machine.
    """
    outside.values(spec)  # nothing starts where one is missing
    with ports.reserve([task.name for task in tasks_of(spec)], base_port) as taken:
        job = asyncio.run(_run(spec, taken, plain, command))
    code, text = _verdict(job, spec)
    if code == Exit.OK:
        text = view.summary(spec, check)
    elif code != Exit.STOPPED:
        text = f"trainer: {text}; TensorFlow's own words are in {spec.directory}/logs"
    with contextlib.suppress(BrokenPipeError):
        print(text, file=sys.stdout if code in (Exit.OK, Exit.STOPPED) else sys.stderr, flush=True)
    return code


def environment_of(spec: JobSpec, task: Task, taken: Mapping[str, int]) -> dict[str, str]:
    """What a task's process finds in its environment, besides what we found in ours."""
    own = {environment.SET, environment.CPUS, environment.CONTROL_PORT}  # --set and TRAINER_SET are in the spec already
    environ = {key: value for key, value in os.environ.items() if key not in own}
    environ |= {
        "TF_CONFIG": task.tf_config(),
        environment.JOB: spec.model_dump_json(exclude_defaults=True),
        environment.PARENT: str(os.getpid()),
        **outside.values(spec),
        "PYTHONUNBUFFERED": "1",
    }
    group, counts = spec.tasks.group(task.type), spec.tasks.counts()
    if group is None or group.cpu is None:
        # A coordinator computes only when the workers are done: the final evaluation.
        alone = task.type == "chief" and spec.traits.coordinated
        sharing = 1 if alone else computing_tasks(spec, counts)
        environ[environment.CPUS] = str(max(1, len(os.sched_getaffinity(0)) // sharing))
    environ.setdefault("NCCL_SOCKET_IFNAME", "lo")  # it would listen on the first interface that other machines reach
    if task.type == "evaluator":  # TF_CONFIG never names its address
        environ[environment.CONTROL_PORT] = str(control_port(taken[task.name]))
    return environ


class _End(NamedTuple):
    """How a task ended that is not started again."""

    code: int
    how: str

    @property
    def failed(self) -> bool:
        return self.code != Exit.OK and not _may_start_again(self.code)


@dataclass
class _Job:
    """What the coroutines of one job share."""

    chief: str
    names: list[str]
    show: view.Show = view.show_nothing
    stopped: bool = False
    """Somebody wants the end: SIGTERM, Ctrl-C, or nobody reads what we print."""
    over: bool = False
    """Nobody is started again."""
    ends: dict[str, _End] = field(default_factory=dict)
    """In the order in which they came."""
    chief_error: str = ""
    """The chief's line of why the job failed."""
    late: list[str] = field(default_factory=list)
    """Who should have ended by itself, and did not."""
    restarts: Counter[str] = field(default_factory=Counter)
    alive: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        self.stopped = True
        self.start_nobody()

    def end(self, name: str, code: int, how: str) -> None:
        self.ends[name] = _End(code, how)
        self.changed.set()

    def failed(self) -> dict[str, _End]:
        """Tasks whose end is the job's failure. An evaluator's is not: the training does without it."""
        return {name: end for name, end in self.ends.items() if end.failed and not _is_evaluator(name)}

    def start_nobody(self) -> None:
        self.over = True
        self.changed.set()

    async def until(self, condition: Callable[[], object], seconds: float | None = None) -> None:
        """Waits until a condition on this object holds, or that long."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not condition():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            self.changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.changed.wait(), left)

    async def until_ended(self, names: Collection[str], seconds: float) -> None:
        """Waits for these tasks to end by themselves, unless somebody stops the job."""
        await self.until(lambda: self.stopped or self.ends.keys() >= set(names), seconds)


async def _run(spec: JobSpec, taken: Mapping[str, int], plain: bool, command: Sequence[str]) -> _Job:
    tasks = tasks_of(spec, lambda task_type, index: f"127.0.0.1:{taken[task_name(task_type, index)]}")
    tasks.sort(key=lambda task: not task.is_chief)  # it imports TensorFlow, which takes longest: it goes first
    job = _Job(tasks[0].name, [task.name for task in tasks])
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, job.stop)
    status_port = control_port(taken[job.chief])
    async with view.open_view(spec, job.names, status_port, job.restarts, job.stop, plain) as job.show:
        shared = {environment.SECRET: secret.new()}
        environs = {task.name: environment_of(spec, task, taken) | shared for task in tasks}
        runs = [asyncio.create_task(_keep_running(job, name, command, environ)) for name, environ in environs.items()]
        try:
            await _until_the_end(job, spec)
        finally:
            job.start_nobody()
            _signal(job.alive.values(), signal.SIGKILL)
            await asyncio.gather(*runs)
    return job


async def _until_the_end(job: _Job, spec: JobSpec) -> None:
    """Waits for the job's end, then for the tasks to end by themselves, then makes them."""
    await job.until(lambda: job.stopped or job.chief in job.ends or job.failed())
    job.start_nobody()
    if job.chief in job.ends and job.ends[job.chief].code == Exit.OK:
        evaluators = [name for name in job.names if _is_evaluator(name)]
        await job.until_ended(set(job.names) - set(evaluators), SUCCEEDED_SECONDS)
        patience = 2 * spec.deadlines.evaluation + spec.deadlines.rendezvous + SUCCEEDED_SECONDS
        await job.until_ended(evaluators, patience)
        if not job.stopped:
            # A task that was stopped by a signal cannot end by itself, and the job did without it.
            job.late = [name for name, process in job.alive.items() if not _is_stopped(process.pid)]
    else:
        await job.until_ended(job.names, FAILED_SECONDS)
    _signal(job.alive.values(), signal.SIGTERM)
    patience = spec.deadlines.stop + KILL_SECONDS
    await job.until(lambda: len(job.ends) == len(job.names), patience)
    for name in job.alive:
        job.show("local", f"{name} did not end within {patience:g} s of SIGTERM, killing it")


def _is_stopped(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return "\nState:\tT" in Path(f"/proc/{pid}/status").read_text()
    return False


def _verdict(job: _Job, spec: JobSpec) -> tuple[int, str]:
    """The job's exit code and, if it did not succeed, why in one line."""
    if failed := job.failed():
        # The task that failed first is the one that the chief names, not the one that ends first after it was notified.
        named = job.chief_error.partition(": ")[0]
        name = named if named in failed else next(iter(failed))
        return failed[name].code, f"{spec.name} failed: {name} {failed[name].how}"
    if job.late:
        return int(Exit.BUG), f"{spec.name}: the chief succeeded, but {', '.join(job.late)} had to be killed"
    if job.stopped and any(end.code for end in job.ends.values()):
        return int(Exit.STOPPED), "stopped; the same command resumes"
    return int(Exit.OK), ""


def _is_evaluator(name: str) -> bool:
    return name.startswith("evaluator:")


def _signal(processes: Iterable[asyncio.subprocess.Process], number: signal.Signals) -> None:
    for process in processes:
        # Not its send_signal(): that one polls, and may take the exit code from asyncio (python/cpython#87744).
        with contextlib.suppress(ProcessLookupError):
            if process.returncode is None:
                os.kill(process.pid, number)


# One task. --------------------------------------------------------------------------------------------


async def _keep_running(job: _Job, name: str, command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Runs a task's process, again and again if it was killed, until its end counts."""
    code, how, in_a_row = int(Exit.STOPPED), "was not started", 0
    try:
        while not job.over:
            began = time.monotonic()
            code = await _run_once(job, name, command, environ)
            how = _how_it_ended(code)
            if job.over or not _may_start_again(code):
                if _is_evaluator(name) and code != Exit.OK and not (job.stopped or job.failed()):
                    job.show("local", f"{name} {how}; the training does not depend on it")
                return
            in_a_row = 1 if time.monotonic() - began > LONG_LIFE_SECONDS else in_a_row + 1
            if in_a_row > MAX_RESTARTS:
                code, how = int(Exit.GAVE_UP), f"{how} {in_a_row} times in a row"
                return
            job.show("local", f"{name} {how}, starting it again")
            job.restarts[name] += 1
            await job.until(lambda: job.over, BACKOFF_SECONDS[min(in_a_row, len(BACKOFF_SECONDS)) - 1])
    except OSError as error:
        code, how = int(Exit.BUG), f"could not be started: {error.strerror}"
    finally:
        job.end(name, code, how)


async def _run_once(job: _Job, name: str, command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs a process to its end, showing its lines; returns its exit code, -n if signal n killed it."""
    # Pipes of our own, for asyncio's Process.wait would wait for the end of its pipes too; see LAST_LINES_SECONDS.
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    try:
        # A session of its own: Ctrl-C reaches only us, and we pass it on.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=out_end, stderr=err_end, env=environ,
            start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(out_end)
        os.close(err_end)
    job.alive[name] = process
    if job.over:
        _signal(
            [process], signal.SIGKILL
        )  # it came too late to be told to stop with the others, and has done nothing yet
    readers = [
        asyncio.create_task(_pass_on(out, functools.partial(job.show, name))),
        asyncio.create_task(_pass_on(err, functools.partial(_show_error, job, name))),
    ]
    code = await process.wait()
    del job.alive[name]
    await asyncio.wait(readers, timeout=LAST_LINES_SECONDS)
    for reader in readers:
        reader.cancel()
    return code


def _show_error(job: _Job, name: str, text: str) -> None:
    if name == job.chief and text.startswith(ERROR_PREFIX):
        job.chief_error = text.removeprefix(ERROR_PREFIX)
    job.show(name, text, error=True)


async def _pass_on(pipe: int, show: Callable[[str], None]) -> None:
    """Shows what comes out of a pipe, line by line."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(pipe, "rb", buffering=0)
    )
    rest = b""
    try:
        while chunk := await reader.read(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            if len(rest) > _LINE_LIMIT:
                lines, rest = [*lines, rest], b""
            for line in lines:
                show(line.decode(errors="replace").rstrip("\r"))
        if rest:
            show(rest.decode(errors="replace"))
    finally:
        transport.close()


def _may_start_again(code: int) -> bool:
    """Whether a task that ended so may fare better the next time: killed, or told to stop."""
    known = {int(each): each for each in Exit}
    return known[code].retryable if code in known else code < 0 or code > 128


def _how_it_ended(code: int) -> str:
    if code < 0:
        names = {int(each): f" ({each.name})" for each in signal.Signals}
        return f"was killed by signal {-code}{names.get(-code, '')}"
    meaning = next((f" ({each.meaning})" for each in Exit if each == code), "")
    return f"ended with exit code {code}{meaning}"
