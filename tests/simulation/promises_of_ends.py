"""What is promised of the ends of tasks and of the job."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

from tests.simulation.lives import AWAY, DISK, EPSILON, HARMLESS, NOTICE, Line, Lives, Process, say
from tests.simulation.promises_of_files import facts

ADDRESS = 60.0
"""docs/operating.md, How it behaves: a task that does not answer at its address has 60 s."""
SECONDS = 10.0
"""docs/operating.md, How it behaves: every other task exits with the chief's code within seconds."""
RETRYABLE = (15, 20, 143)
"""trainer/job/errors.py, Exit.retryable."""


def result_of_success(lives: Lives) -> Iterator[Line]:
    """Code 0 means that the job has its result: of the chief, and of every task that repeats it.

    docs/architecture.md, A job's life, 6: the chief writes result.json, and then replies "done". docs/operating.md,
    Exit codes: 0 is success. Only on Kubernetes do tasks exit with 0 after a failure (docs/kubernetes.md, How a job
    ends).
    """
    results = [event.at for event in lives.wrote if event.file == "result.json" and event.content]
    for process in lives.processes.values():
        if lives.history.on_kubernetes and process.task != lives.chief:
            continue
        if process.code == 0 and not (results and results[0] <= process.end + EPSILON):
            yield say(process.end, process.task, f"process {process.number} ends with 0, but there is no result.json")


def nothing_is_left(lives: Lives) -> Iterator[Line]:
    """At the end there are no processes, children, ports and locks.

    docs/operating.md, How it behaves: every other task exits within seconds; the child's processes end with it.
    docs/architecture.md, Layers: a child's end. README.md: the cluster exits when training is complete.
    """
    ended = lives.history.ended
    for thing in lives.history.left:
        yield say(ended, lives.chief, f"{thing} is left")
    for task in lives.history.tasks:
        last = lives.of_task[task][-1] if task in lives.of_task else None
        if last is not None and last.code is None and not last.killed:
            yield say(ended, task, f"process {last.number} still runs")


def ends_in_time(lives: Lives) -> Iterator[Line]:
    """Once nothing disturbs the job any more, it never stands still for longer than the sum of its deadlines.

    docs/spec.md, deadlines: every wait in a job ends at one of them.

    An attempt that fails takes at most task_lost + hang + progress until that is noticed, stop to end the children,
    start or rejoin until all are there, 60 s for a task that does not answer at its address, and stop + 5 s for the
    lease (docs/clusters.md, Lost nodes). What happened before may cost max_restarts + 1 attempts. Tasks wait for a
    chief for start or chief_lost. The end takes the chief's evaluation and the evaluator's, chief_lost for a task that
    is restarting, and notify. Steps of any number may be made meanwhile, so the time counts from the last one, or from
    the last start of a task, which the target delays.
    """
    spec, history = lives.history.spec, lives.history
    limits = spec.deadlines
    if not lives.trains:
        return
    wait = max(limits.start, limits.rejoin, limits.chief_lost)
    noticed = limits.task_lost + limits.hang + limits.progress
    attempt = noticed + limits.stop + wait + ADDRESS + limits.stop + NOTICE
    still = attempt * (spec.max_restarts + 1) + wait
    end = 2 * limits.evaluation + limits.chief_lost + limits.notify + limits.stop + SECONDS
    starts = [process.start for process in lives.processes.values()]
    marks = sorted([step.at for step in lives.chief_steps] + starts)
    at = history.faults_over
    for mark in [mark for mark in marks if mark > at]:
        if mark - at > still:
            yield say(mark, lives.chief, f"the job stood still since {at:.1f} s: its deadlines allow {still:.1f} s")
        at = mark
    if history.ended - at > still + end:
        allowed = f"its deadlines allow {still + end:.1f} s"
        yield say(
            history.ended, lives.chief, f"the job had not ended since its last step or start at {at:.1f} s: {allowed}"
        )


def first_verdict_stands(lives: Lives) -> Iterator[Line]:
    """Once a run has ended, each later start of its chief gives the same exit code.

    trainer/job/errors.py, Exit: only a retryable code can change if the task is restarted. docs/operating.md, How it
    behaves: a job that failed for its data, workload or disk is never restarted; Exit codes, 0: the job is already
    complete.

    A chief that has written the result, or the end to the journal, and was killed before its exit has ended the run
    too, unless the power was cut. With a disk that is full or read-only a failure cannot be recorded. A stop, a chief
    that was lost and another process in its place are no verdicts.
    """
    limits = lives.history.spec.deadlines
    for run in {process.run for process in lives.of_task.get(lives.chief, ())}:
        processes = [process for process in lives.of_task[lives.chief] if process.run == run]
        verdicts = [(p.end, p.code, f"process {p.number} had ended with") for p in processes if _final(p)]
        numbers = {process.number for process in processes}
        for event in lives.wrote:
            if event.file == "result.json" and event.content and event.process in numbers:
                verdicts.append((event.at, 0, f"process {event.process} had written the result of"))
                break
        for event, fact in facts(lives, "ended"):
            code, cut = fact.get("code"), lives.disturbed(event.at, inf, (lives.chief,), frozenset(("host",)))
            if event.process in numbers and isinstance(code, int) and code not in RETRYABLE and not cut:
                verdicts.append((event.at, code, f"process {event.process} had written to the journal an end with"))
        if not verdicts:
            continue
        at, code, who = min(verdicts, key=lambda verdict: verdict[0])
        if code and lives.disturbed(at - limits.chief_lost - NOTICE, at, (lives.chief,), DISK):
            continue
        for process in processes:
            if process.code == 2 and lives.disturbed(process.start, process.end, (lives.chief,), DISK):
                continue  # it can neither read the verdict nor take the place
            if process.end > at + EPSILON and _final(process) and process.code != code:
                yield say(process.end, process.task, f"process {process.number} ends with {process.code}, {who} {code}")


def _final(process: Process) -> bool:
    return process.code is not None and process.code not in RETRYABLE


def in_time_for_the_job(lives: Lives) -> Iterator[Line]:
    """A job takes no longer than deadlines.job, including restarts.

    docs/spec.md, deadlines.job; each start of the job begins anew (docs/operating.md, Troubleshooting, 19). The end
    of the children takes deadlines.stop, that of the job notify, and the chief waits for a task that is restarting
    for chief_lost. A chief that is started later than that ends at once.
    """
    limits = lives.history.spec.deadlines
    if limits.job is None:
        return
    began: dict[str, float] = {}
    for process in lives.of_task.get(lives.chief, ()):
        over = max(began.setdefault(process.run, process.start) + limits.job, process.start)
        over += limits.stop + limits.notify + limits.chief_lost + SECONDS
        end = min(process.end, lives.history.ended)
        if end > over and not lives.disturbed(over - SECONDS, end, (lives.chief,), DISK | {"freeze"}):
            yield say(over, process.task, f"process {process.number} still runs: deadlines.job is {limits.job:.1f} s")


MILD = frozenset(("crash", "kill", "host", "stop", "freeze", "hang", "cut", "late", "deaf", "zombie", "double"))


def few_faults_end_in_success(lives: Lives) -> Iterator[Line]:
    """A job ends with 0 if less happens to its cluster than it promises to survive, and whatever happens to its
    evaluator.

    README.md: it survives the death of any task, exits when training is complete. docs/failures.md: a promise is
    broken if the job's exit code is another one, for the faults of its table; docs/clusters.md, Lost nodes, has one
    whose process comes back. docs/operating.md: a failed evaluator, or a stranger, changes nothing.

    A fault may cost two generations, so half as many faults as max_restarts are few. What is away for less than half
    of the deadlines that wait for it, all in all, has come back; what is cut off for 60 s is a wrong address.
    """
    spec, history = lives.history.spec, lives.history
    chiefs = lives.of_task.get(lives.chief, ())
    if history.asked_to_stop or spec.deadlines.job is not None or spec.resume == "none" or not chiefs:
        return
    limits = spec.deadlines
    faults = [fault for fault in lives.faults_of(lives.members) if fault.kind not in HARMLESS]
    if any(fault.kind not in MILD for fault in faults) or any(fault.kind == "lie" for fault in lives.faults):
        return
    last = chiefs[-1]
    end = last.end if last.end < inf else history.ended
    away = sum(fault.until - fault.at for fault in faults if fault.kind in ("freeze", "cut", "late"))
    away += sum(
        min(until, end) - since for task in lives.members for since, until in lives.absences(task) if since < end
    )
    killed = sum(process.killed and process.task in lives.members for process in lives.processes.values())
    count = killed + sum(fault.kind not in ("kill", "host", "late") for fault in faults)
    if 2 * count > spec.max_restarts or away > min(limits.start, limits.rejoin, limits.chief_lost, ADDRESS) / 2:
        return
    if last.code not in (0, None):
        text = f"process {last.number} ends with {last.code}, after {count} faults and {away:.1f} s of absence"
        yield say(last.end, last.task, text)


def errors_are_lines(lives: Lives) -> Iterator[Line]:
    """An error is one line, and no traceback.

    docs/operating.md, Exit codes: an error is one line on stderr that names the value, the rule and the fix; a
    traceback, of code 1, is in the task's log.
    """
    for event in lives.logged:
        line = event.line
        if "Traceback (most recent call last)" in line:
            yield say(event.at, event.task, f"process {event.process} logs a traceback")
        elif event.error and (not line.strip() or "\n" in line.strip("\n")):
            yield say(event.at, event.task, f"process {event.process} logs an error that is not one line: {line!r}")


def failures_have_a_line(lives: Lives) -> Iterator[Line]:
    """A chief that fails has said why, and so has a task that gives up its chief or its place; code 10 names a task.

    docs/operating.md, Exit codes: an error is one line on stderr; How it behaves, a task has not come yet: one line
    with task and reason, and exit code 10.
    """
    lines: dict[int, list[str]] = {}
    for event in lives.logged:
        if event.error:
            lines.setdefault(event.process, []).append(event.line)
    for process in lives.processes.values():
        own = process.task == lives.chief or process.code in (15, 20)
        if not own or process.code in (None, 0, 143):
            continue
        said = lines.get(process.number, [])
        if not said:
            yield say(
                process.end, process.task, f"process {process.number} ends with {process.code} without an error line"
            )
        elif process.code == 10 and not any(task in line for line in said for task in lives.history.tasks):
            yield say(process.end, process.task, f"process {process.number} ends with 10, and its error names no task")


WAITING = 30.0


def waits_are_logged(lives: Lives) -> Iterator[Line]:
    """A chief that waits for tasks logs every 30 s how many are ready, so it has done so before it ends with 10.

    docs/operating.md, How it behaves, a task has not come yet; docs/clusters.md, Waiting, has the line.
    """
    limits = lives.history.spec.deadlines
    if min(limits.start, limits.rejoin) < WAITING + NOTICE:
        return
    for process in lives.of_task.get(lives.chief, ()):
        begin = process.end - WAITING - NOTICE
        if process.code != 10 or process.start > begin or lives.disturbed(begin, process.end, (process.task,), AWAY):
            continue
        if not any("tasks are ready" in line.line and begin <= line.at <= process.end for line in lives.logged):
            yield say(process.end, process.task, f"process {process.number} has not logged how many tasks are ready")
