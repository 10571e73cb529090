"""The verdict on a job: what failed first, where, what followed, and what to try."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trainer.debug import symptoms
from trainer.debug.evidence import Evidence, Moment, lines
from trainer.debug.history import ERROR, TASK, core, history, is_error
from trainer.debug.symptoms import Symptom
from trainer.job.errors import Exit
from trainer.protocol.facts import Cause, Formed, Hung, Loss, Lost, Stalled
from trainer.protocol.log_lines import STOPPED_PREFIX
from trainer.protocol.tracebacks import causes

Outcome = Literal["failed", "stopped", "succeeded", "running", "waiting", "never started", "vanished", "unknown"]
MOST_FOLLOWED = 12
MOST_GROUPS = 3
"""Groups of tasks of which the lines are shown; the archive has the stacks of all."""
MOST_CALLS = 4
NOWHERE = Path("/-")
"""The folder of a program of which nothing is known: paths in tracebacks stay as they are."""
_PLACE = re.compile(r"(?P<file>[^\s:'\"(]+\.py):(?P<line>\d+)")
_WITHOUT_REASON = {Cause.KILLED, Cause.EXITED, Cause.HANG, Cause.SILENT, Cause.NO_CONTACT, Cause.SUPERVISOR_RESTARTED}
"""Causes behind which the task's log may have another one."""
_OF_A_HANG = {Cause.HANG, Cause.NO_NEW_STEP}


@dataclass(frozen=True)
class Verdict:
    outcome: Outcome
    headline: str
    """All of it in one line."""
    cause: Moment | None = None
    """The first failure."""
    place: str = ""
    """FILE:LINE of the user's code that it names."""
    code: int | None = None
    details: Sequence[str] = ()
    """Further lines on the cause."""
    followed: Sequence[Moment] = ()
    advice: Sequence[Symptom] = field(default_factory=list)

    @property
    def meaning(self) -> str:
        """Of the exit code."""
        return meaning(self.code) if self.code is not None else ""


def meaning(code: int) -> str:
    """What an exit code means, also one that is not trainer's."""
    if code in list(Exit):
        return Exit(code).meaning
    number = code - 128 if code > 128 else -code
    return f"killed by signal {number}" if 0 < number < 65 else ""


def verdict(evidence: Evidence) -> Verdict:
    """Names the first failure of a job, or why it has none."""
    if evidence.phase == "done":
        return _succeeded(evidence)
    if evidence.phase in ("failed", "stopped"):
        return _stopped(evidence) if evidence.code == Exit.STOPPED else _failed(evidence)
    if evidence.problems:
        return _never_started(evidence)
    return _running(evidence)


def _failed(evidence: Evidence) -> Verdict:
    told = history(evidence)
    task, message = _end(evidence, told)
    loss = evidence.ended.loss if evidence.ended else None
    first, *more = message.splitlines()
    cause = _cause(told, first, task, evidence)
    details = [*more, *_behind(evidence, cause.task, first, loss), *_hang(evidence, loss)]
    details += _lines_of_hang(evidence, [first, *details])
    code = f" with exit code {evidence.code}" if evidence.code else ""
    return Verdict(
        "failed",
        f"{evidence.job} failed{code}: {_named(task, first)}",
        cause,
        _place([first, *details]),
        evidence.code,
        details,
        _followed(evidence, told, cause),
        symptoms.matching([_reason(evidence, task), first, *details], evidence.code, loss),
    )


def _stopped(evidence: Evidence) -> Verdict:
    told = history(evidence)
    message = evidence.message or STOPPED_PREFIX.rstrip("; ")
    cause = next((each for each in told if STOPPED_PREFIX in each.text), Moment(message, evidence.chief))
    return Verdict(
        "stopped",
        f"{evidence.job} was stopped: {message}",
        cause,
        _place(details := _lines_of_hang(evidence, [])),
        evidence.code,
        details,
        followed=_followed(evidence, told, cause),
        advice=symptoms.matching([message], evidence.code),
    )


def _succeeded(evidence: Evidence) -> Verdict:
    lost = [moment for _, moment in _losses(evidence)]
    remarks = [*evidence.remarks, *(f"it continued after: {each.text}" for each in lost[:1])]
    complete = [each for each in evidence.logs if "already complete" in each.text]
    texts = [*remarks, *(["already complete"] if complete else [])]
    return Verdict(
        "succeeded",
        f"{evidence.job} succeeded{'' if not complete else ', and was already complete when it was started again'}",
        code=int(Exit.OK),
        details=remarks,
        followed=lost[:MOST_FOLLOWED],
        advice=symptoms.matching(texts, None),
    )


def _never_started(evidence: Evidence) -> Verdict:
    first, *more = evidence.problems
    code = evidence.code
    return Verdict(
        "unknown" if evidence.phase else "never started",
        f"{evidence.job} {'cannot be examined' if evidence.phase else 'never started'}: {first}",
        Moment(first),
        _place(evidence.problems),
        code,
        more,
        advice=symptoms.matching(evidence.problems, code),
    )


def _running(evidence: Evidence) -> Verdict:
    """A job that has not ended, as far as is known."""
    told = history(evidence)
    waits = {name: each for name, each in evidence.tasks.items() if each.reason and each.code in (None, 0)}
    failed = {name: each for name, each in evidence.tasks.items() if each.code}
    reasons = [
        *([evidence.waiting_for] if evidence.waiting_for else []),
        *(f"{n}: {t.reason}" for n, t in waits.items()),
    ]
    errors = [each for each in told if is_error(each.text)]
    losses = [moment for _, moment in _losses(evidence)]
    if evidence.phase in ("", "vanished"):
        return _vanished(evidence, told)
    outcome: Outcome = "waiting" if reasons else "running"
    if reasons:
        headline = f"{evidence.job} waits for {reasons[0]}; nothing else has failed"
    elif evidence.remarks:
        headline = f"{evidence.job} runs: {evidence.remarks[0]}"
    else:
        headline = f"{evidence.job} runs ({evidence.phase}), and nothing has failed"
    earlier = (errors or losses)[-1:]
    if earlier and not reasons:
        headline = f"{evidence.job} runs ({evidence.phase}); before that {earlier[0].text.removeprefix(ERROR)}"
    details = [*reasons[1:], *evidence.remarks, *(f"{n} ended with exit code {t.code}" for n, t in failed.items())]
    cause = earlier[0] if earlier and not reasons else None
    if reasons and (name := TASK.match(reasons[0])):
        cause = Moment(reasons[0], name[0])
    codes = [each.code for each in failed.values()]
    texts = [*reasons, *details, *(each.text for each in earlier)]
    return Verdict(
        outcome,
        headline,
        cause,
        _place(texts),
        None,
        details,
        _followed(evidence, told, cause) if cause else (),
        symptoms.matching(texts, codes[0] if codes else None),
    )


def _vanished(evidence: Evidence, told: Sequence[Moment]) -> Verdict:
    """A job that has ended, and whose files do not show how."""
    last = next((each for each in reversed(told) if is_error(each.text)), told[-1] if told else None)
    why = "its processes were killed, or the machine was restarted"
    text = f"{evidence.job} has ended, and its files do not show how: {why}"
    details = [*evidence.remarks, *([f"the last known event: {last.text}"] if last else [])]
    return Verdict("vanished", text, last, details=details, advice=symptoms.matching(details, None))


# Parts. -----------------------------------------------------------------------------------------------


def _end(evidence: Evidence, told: Sequence[Moment]) -> tuple[str, str]:
    """The task that the cause is in, and why the job ended."""
    message = _message(evidence, told)
    task = _culprit(evidence, message, evidence.code)
    reason = _reason(evidence, task)
    if not message:
        message = f"{task}: {reason}" if reason else f"{task} ended without a message"
    elif ("out of memory" in reason or _never_ran(evidence, task)) and reason not in message:
        first, *more = message.splitlines()  # the chief has not seen what its place shows of a task
        message = "\n".join([f"{first}; {task}: {reason}", *more])
    return task, message


def _reason(evidence: Evidence, task: str) -> str:
    """Why a task does not run, as its place shows it."""
    return evidence.tasks[task].reason if task in evidence.tasks else ""


def _never_ran(evidence: Evidence, task: str) -> bool:
    return task in evidence.tasks and evidence.tasks[task].state in ("pending", "missing")


def _cause(told: Sequence[Moment], message: str, task: str, evidence: Evidence) -> Moment:
    """The first failure, with the time and the file of the first record of it. Of losses that repeat the first one of
    this kind began it."""
    loss = evidence.ended.loss if evidence.ended else None
    if loss is not None and not loss.error and (begin := _first_loss(evidence, loss)):
        return begin
    recorded = _first(told, message)
    if recorded is None:
        return Moment(message, task, evidence.tasks[task].ended if task in evidence.tasks else None)
    return Moment(message, task, recorded.time, recorded.path)


def _losses(evidence: Evidence) -> list[tuple[Loss, Moment]]:
    """The losses and stalls that the chief has recorded since the job began."""
    return [
        (each.fact.loss, Moment(each.text, each.task or "", each.time, evidence.journal_path))
        for each in evidence.of_this_start
        if isinstance(each.fact, (Lost, Stalled))
    ]


def _first_loss(evidence: Evidence, loss: Loss) -> Moment | None:
    alike = [moment for each, moment in _losses(evidence) if (each.cause, each.signal) == (loss.cause, loss.signal)]
    return alike[0] if alike else None


def _message(evidence: Evidence, told: Sequence[Moment]) -> str:
    """Why the job ended: the chief's message, or the first error that a task has reported."""
    if evidence.message:
        return "\n".join(line.removeprefix(ERROR) for line in evidence.message.splitlines())
    errors = [each for each in told if is_error(each.text)]
    of_chief = [each for each in errors if each.task == evidence.chief]
    return (of_chief or errors)[0].text.removeprefix(ERROR) if errors else ""


def _culprit(evidence: Evidence, message: str, code: int | None) -> str:
    """The task that the cause is in."""
    if code == Exit.CHIEF_LOST:
        return evidence.chief
    if evidence.ended and evidence.ended.task:
        return evidence.ended.task
    if named := TASK.search(message):
        return named[0]
    if message:
        return evidence.chief
    failed = [name for name, each in evidence.tasks.items() if each.code]
    consequence = {name: evidence.tasks[name].code == Exit.CHIEF_LOST for name in failed}
    return min(
        failed, key=lambda name: (consequence[name], evidence.tasks[name].ended or math.inf), default=evidence.chief
    )


def _behind(evidence: Evidence, task: str, message: str, loss: Loss | None) -> list[str]:
    """The reason in the task's logs, if no record has one."""
    explained = (
        loss.cause not in _WITHOUT_REASON if loss else evidence.ended is not None or bool(_PLACE.search(message))
    )
    if explained and evidence.code != Exit.BUG:
        return []
    logs = ["\n".join(each.text for each in lines(log)) for log in evidence.logs if log.task == task]
    reasons = [text for log in logs for text in causes(log, NOWHERE) if text not in message]
    return [f"the log of {task}: {text}" for text in reasons[:1]]


def _hang(evidence: Evidence, loss: Loss | None) -> list[str]:
    """Where the tasks were when the job hung, if that is how it ended."""
    hangs = [each.text for each in evidence.of_this_start if isinstance(each.fact, Hung)]
    return hangs[-1:] if loss and loss.cause in _OF_A_HANG else []


def _lines_of_hang(evidence: Evidence, known: Sequence[str]) -> list[str]:
    """Where the tasks were when the job ended, if it hung then: the line about it, and the user's lines.

    Args:
        known: lines that are shown already.
    """
    formed = max((each.time for each in evidence.of_this_start if isinstance(each.fact, Formed)), default=0.0)
    if not evidence.hangs or (last := evidence.hangs[-1]).time < formed:
        return []
    found = [last.text] if last.text and not any(last.text in line for line in known) else []
    for group in last.groups[:MOST_GROUPS]:
        calls = [str(frame) for frames in group.threads for frame in frames if frame.theirs]
        if calls:
            rest = f" and {len(group.tasks) - 1} more" if len(group.tasks) > 1 else ""
            found.append(f"{group.tasks[0]}{rest} at {', '.join(calls[:MOST_CALLS])}")
    return found


def _first(told: Sequence[Moment], message: str) -> Moment | None:
    """The first time at which a failure was reported."""
    begin = core(message)[:80]
    same = [each for each in told if begin in core(each.text)]
    return same[0] if same else None


def _followed(evidence: Evidence, told: Sequence[Moment], cause: Moment) -> list[Moment]:
    """What happened after the first failure, and how the other tasks ended."""
    text = core(cause.text)
    later = [
        each
        for each in told
        if cause.time is not None
        and each.time is not None
        and each.time >= cause.time
        and core(each.text) != text
        and (each.time, each.path) != (cause.time, cause.path)
    ]
    ends = [
        Moment(f"ended with exit code {each.code}{f': {each.reason}' if each.reason else ''}", name, each.ended)
        for name, each in evidence.tasks.items()
        if each.code and name != cause.task
    ]
    return [*later[:MOST_FOLLOWED], *ends[:MOST_FOLLOWED]]


def _place(texts: Iterable[str]) -> str:
    place = next((match for text in texts if (match := _PLACE.search(text))), None)
    return place[0] if place else ""


def _named(task: str, text: str) -> str:
    return text if task in text or not task else f"{task}: {text}"
