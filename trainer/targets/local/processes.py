"""Starts and watches the processes of a local job, and restarts killed ones."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import signal
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from trainer.job.errors import Exit
from trainer.protocol.log_lines import STOPPED_PREFIX
from trainer.targets.local import view

ERROR_PREFIX = "trainer: "
"""Prefix of the line in which a task reports its failure."""

MAX_RESTARTS = 20
"""Maximum consecutive restarts of a task. A life of LONG_LIFE_SECONDS resets the count and the back-off."""
LONG_LIFE_SECONDS = 30.0
BACKOFF_SECONDS = (0.2, 0.4, 0.8, 1.6, 3.2, 5.0)
LAST_LINES_SECONDS = 0.5
"""How long output is read after a task's end: a process started by the user's code may have inherited its pipes and
keep them open."""
_LINE_LIMIT = 1 << 20


class End(NamedTuple):
    """The end of a task that is not restarted."""

    code: int
    how: str

    @property
    def failed(self) -> bool:
        return self.code != Exit.OK and not _retryable(self.code)


@dataclass
class LocalJob:
    """State shared by the coroutines of one job."""

    chief: str
    names: list[str]
    show: view.Show = view.show_nothing
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    """The mark before what a task's supervisor reports as its failure (FAILURE_MARK)."""
    stopped: bool = False
    """Whether the job was stopped: by SIGTERM, Ctrl-C, or the exit of the reader of our output."""
    stop_report: str = ""
    """The tasks' line about that stop, for the launcher's last line."""
    over: bool = False
    """Whether no task is restarted any more."""
    ends: dict[str, End] = field(default_factory=dict)
    """The end of each task, in chronological order."""
    errors: defaultdict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    """The lines in which each task's current process reports its failure."""
    overdue: list[str] = field(default_factory=list)
    """Tasks that should have ended by themselves but did not."""
    restarts: Counter[str] = field(default_factory=Counter)
    alive: dict[str, asyncio.subprocess.Process] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        self.stopped = True
        self.no_more_restarts()

    def end(self, name: str, code: int, how: str) -> None:
        self.ends[name] = End(code, how)
        self.changed.set()

    def failed(self) -> dict[str, End]:
        """Tasks whose end fails the job. An evaluator's does not: the training does not need it."""
        return {name: end for name, end in self.ends.items() if end.failed and not is_evaluator(name)}

    def root_cause(self) -> str:
        """The failed task that the chief's message names; without one, the chief; without a message, the first to
        end."""
        failed, candidates = self.failed(), list[str]()
        for verdict in self.errors[self.chief][:1]:
            candidates = [verdict.removeprefix(ERROR_PREFIX).partition(": ")[0], self.chief]
        return next(name for name in (*candidates, *failed) if name in failed)

    def no_more_restarts(self) -> None:
        self.over = True
        self.changed.set()

    async def until(self, condition: Callable[[], object], seconds: float | None = None) -> None:
        """Waits until a condition on this object holds, or the time has passed."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while not condition():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return
            self.changed.clear()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self.changed.wait(), left)

    async def until_ended(self, names: Collection[str], seconds: float) -> None:
        """Waits for these tasks to end by themselves, unless the job is stopped."""
        await self.until(lambda: self.stopped or self.ends.keys() >= set(names), seconds)


def is_evaluator(name: str) -> bool:
    return name.startswith("evaluator:")


def send(processes: Iterable[asyncio.subprocess.Process], number: signal.Signals) -> None:
    for process in processes:
        # Not its send_signal(): that one polls, and may take the exit code from asyncio (python/cpython#87744).
        with contextlib.suppress(ProcessLookupError):
            if process.returncode is None:
                os.kill(process.pid, number)


# One task. --------------------------------------------------------------------------------------------


async def keep_running(job: LocalJob, name: str, command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Runs a task's process, and restarts it if it is killed, until it ends for good."""
    code, how, in_a_row = int(Exit.STOPPED), "was not started", 0
    try:
        while not job.over:
            began = time.monotonic()
            job.errors[name].clear()
            code = await _run_once(job, name, command, environ)
            how = _how_it_ended(code, explained=bool(job.errors[name]))
            if job.over or not _retryable(code):
                if is_evaluator(name) and code != Exit.OK and not (job.stopped or job.failed()):
                    job.show("local", f"{name} {how}; the training does not depend on it")
                return
            in_a_row = 1 if time.monotonic() - began > LONG_LIFE_SECONDS else in_a_row + 1
            if in_a_row > MAX_RESTARTS:
                code, how = int(Exit.GAVE_UP), f"{how} {in_a_row} times in a row"
                return
            job.show("local", f"{name} {how}, restarting it")
            job.restarts[name] += 1
            await job.until(lambda: job.over, BACKOFF_SECONDS[min(in_a_row, len(BACKOFF_SECONDS)) - 1])
    except OSError as error:
        code, how = int(Exit.BUG), f"could not be started: {error.strerror}"
    finally:
        job.end(name, code, how)


async def _run_once(job: LocalJob, name: str, command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Runs a process to its end, showing its lines; returns its exit code, -n if signal n killed it."""
    # Pipes of our own, for asyncio's Process.wait would wait for the end of its pipes too; see LAST_LINES_SECONDS.
    (out, out_end), (err, err_end) = os.pipe(), os.pipe()
    try:
        # In its own session: Ctrl-C reaches only this process, which forwards it.
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=out_end, stderr=err_end, env=environ,
            start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(out_end)
        os.close(err_end)
    job.alive[name] = process
    if job.over:
        send([process], signal.SIGKILL)  # it started after the signal to the others
    readers = [
        asyncio.create_task(_forward(out, functools.partial(_show_line, job, name))),
        asyncio.create_task(_forward(err, functools.partial(_show_error, job, name))),
    ]
    code = await process.wait()
    del job.alive[name]
    await asyncio.wait(readers, timeout=LAST_LINES_SECONDS)
    for reader in readers:
        reader.cancel()
    return code


def _show_line(job: LocalJob, name: str, text: str) -> None:
    """Shows a line of stdout, except that of a stop of the whole job, which the launcher prints once at the end."""
    if job.stopped and text.startswith(STOPPED_PREFIX):
        job.stop_report = text
    else:
        job.show(name, text)


def _show_error(job: LocalJob, name: str, text: str) -> None:
    """Shows a line of stderr, except a failure that another task has reported already: each task reports why the job
    ended, for the logs of containers. A program may have left the line that it comes in unfinished."""
    own, mark, failure = text.partition(job.mark)
    if own or not mark:
        job.show(name, own, error=True)
    if mark:
        known = any(failure in lines for lines in job.errors.values())
        job.errors[name].append(failure)
        if not known:
            job.show(name, failure, error=True)


async def _forward(pipe: int, show: Callable[[str], None]) -> None:
    """Shows the output of a pipe line by line."""
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


def _retryable(code: int) -> bool:
    """Whether a task with this exit code is restarted: it was killed, or asked to stop."""
    known = {int(each): each for each in Exit}
    return known[code].retryable if code in known else code < 0 or code > 128


def _how_it_ended(code: int, explained: bool) -> str:
    """How a task ended, in a few words; an exit code with its meaning, unless the task has explained its failure."""
    if code < 0:
        names = {int(each): f" ({each.name})" for each in signal.Signals}
        return f"was killed by signal {-code}{names.get(-code, '')}"
    meaning = next((f" ({each.meaning})" for each in Exit if each == code and not explained), "")
    return f"ended with exit code {code}{meaning}"
