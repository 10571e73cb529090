"""`notify` of the spec: the chief reports the end of the job to a webhook or a command.

Each end is reported once, by the chief that decides it: not by one that has lost its place, nor by one that was started
again and finds the end in model_dir. An error of the report is only a line in the log.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from trainer import clocks, reporting
from trainer.job import environment, program
from trainer.job.addresses import address_rule
from trainer.job.cluster import Task
from trainer.job.errors import Exit, Outcome, UserError, outcome
from trainer.job.spec import JobSpec
from trainer.protocol.events import Figures
from trainer.protocol.log_lines import STOPPED_PREFIX, log_line
from trainer.supervisor.children import child_environ, orphans
from trainer.supervisor.children.program import exit_loss
from trainer.supervisor.outside import outbound
from trainer.supervisor.task.figures import in_words

VERSION = 1
"""Version of the report. It increases when a field is renamed, removed or changes its meaning."""
FIRST_PAUSE = 0.5
"""Seconds before a webhook that does not answer is called again. Each next pause is twice as long."""
LEAST_SECONDS = 1.0
"""How long a report may take after SIGTERM, even if the checkpoint took all of deadlines.stop."""
_LONGEST = 3000
"""The longest text for a chat, in characters."""
_HEADERS = {"Content-Type": "application/json"}
_IN_A_CHAT = {ord("&"): "&amp;", ord("<"): "&lt;", ord(">"): "&gt;"}
"""Slack takes <...> for links and mentions (docs.slack.dev, formatting message text)."""


@dataclass(frozen=True)
class Ending:
    """How the job ended."""

    code: Exit
    message: str = ""
    """Why the job has failed; empty after success."""
    step: int = 0
    figures: Figures = field(default_factory=dict)
    """The figures of the result, otherwise the last known ones."""
    seconds: float = 0.0
    """Seconds since the job's start."""
    generations: int = 0
    restarts: int = 0
    """Restarts of the cluster, and of tasks that restart alone, since the job was started."""

    @property
    def outcome(self) -> Outcome:
        return outcome(self.code)


def report(spec: JobSpec, end: Ending) -> dict[str, object]:
    """The JSON object that is sent."""
    figures = {name: value if _is_plain(value) else None for name, value in end.figures.items()}
    return {
        "version": VERSION,
        "text": _text(spec, end),
        "job": spec.name,
        "outcome": end.outcome,
        **asdict(end),
        "code": int(end.code),
        "figures": figures,
        "seconds": round(end.seconds, 3),
        "model_dir": spec.directory,
        "time": clocks.wall(),
    }


def _is_plain(value: object) -> bool:
    if isinstance(value, str):
        return value not in reporting.NOT_FINITE
    return isinstance(value, (bool, int)) or (isinstance(value, float) and math.isfinite(value))


def _text(spec: JobSpec, end: Ending) -> str:
    took = _duration(end.seconds)
    if end.outcome == "failed":
        text = f"{spec.name} failed after {took} with exit code {int(end.code)}: {end.message}"
    elif end.outcome == "stopped":
        text = f"{spec.name} was stopped after {took}: {end.message.removeprefix(STOPPED_PREFIX)}"
    else:
        text = f"{spec.name} succeeded after {took}: {in_words(end.figures)}".removesuffix(": ")
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 120 else f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def check(spec: JobSpec, task: Task) -> None:
    """Checks at the start of the chief what the end of the job needs.

    Raises:
        UserError: the variable of `webhook_from` holds no address, or there is no such command.
    """
    notify = spec.notify
    if notify is None:
        return
    if notify.webhook_from and (
        rule := address_rule(child_environ.of_program(spec, task).get(notify.webhook_from, ""))
    ):
        raise UserError(f"secrets.{notify.webhook_from}: its value {rule}")
    if notify.command:
        environ = child_environ.of_program(spec, task)
        first = program.expand(notify.command[0], environ)
        program.executable(first, program.folder(spec), environ, "notify.command")


def seconds_left(spec: JobSpec, leaving_since: float | None) -> float:
    """How long the chief may take to report the end.

    Args:
        leaving_since: when it was asked to stop, on the monotonic clock.
    """
    seconds = spec.deadlines.notify
    if leaving_since is not None:
        seconds = min(seconds, spec.deadlines.stop - (clocks.monotonic() - leaving_since))
    return max(seconds, LEAST_SECONDS)


async def tell(spec: JobSpec, task: Task, end: Ending, seconds: float) -> None:
    """Reports the end of the job as the spec asks for, for at most that many seconds."""
    notify = spec.notify
    if notify is None or end.outcome not in notify.when:
        return
    document = report(spec, end)
    body = json.dumps(document).encode()
    for_a_chat = json.dumps({**document, "text": str(document["text"]).translate(_IN_A_CHAT)}).encode()
    environ = child_environ.of_program(spec, task)
    address = notify.webhook or environ.get(notify.webhook_from or "")
    attempts = {
        **({"webhook": _post(address, for_a_chat, environ, seconds)} if address else {}),
        **({"command": _run(spec, notify.command, body, environ, seconds)} if notify.command else {}),
    }
    for name, why in zip(attempts, await asyncio.gather(*attempts.values()), strict=True):
        if why:
            log_line(f"warning: notify.{name}: {why}")


async def _post(address: str, body: bytes, environ: Mapping[str, str], seconds: float) -> str:
    """Returns why the report was not taken; empty if it was."""
    deadline, pause = clocks.monotonic() + seconds, FIRST_PAUSE
    async with outbound.connect(address, environ) as server:
        while True:
            try:
                answer = await server.call("POST", "", body, _HEADERS, deadline - clocks.monotonic())
                if answer.is_good:
                    return ""
                why, again = f"{server.host} answers {answer.status}", answer.is_passing
            except ConnectionError as error:
                why, again = str(error), True
            if not again or clocks.monotonic() + pause > deadline:
                return f"{why}; the end of the job is not reported there"
            await asyncio.sleep(pause)
            pause *= 2


async def _run(spec: JobSpec, command: list[str], body: bytes, environ: Mapping[str, str], seconds: float) -> str:
    """Returns why the command did not take the report; empty if it did."""
    mark = orphans.mark(0)  # children have the numbers from 1
    first, *rest = [program.expand(word, environ) for word in command]
    try:
        folder = program.folder(spec)
        words = [program.executable(first, folder, environ, "its first word"), *rest]
        process = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.PIPE, env={**environ, environment.CHILD: mark}, cwd=folder,
            start_new_session=True,
        )  # fmt: skip
    except UserError as error:
        return str(error)
    except OSError as error:
        return f"{first!r}: {error.strerror}"
    try:
        await asyncio.wait_for(process.communicate(body), seconds)
    except asyncio.TimeoutError:
        return f"{first!r}: killed after {seconds:g} s (deadlines.notify)"
    finally:
        await orphans.end(mark, process.pid)
        code = await process.wait()
    return f"{first!r}: {exit_loss(code)}" if code else ""
