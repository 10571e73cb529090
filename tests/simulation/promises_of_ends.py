"""What is promised of the ends of tasks and of the job."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.lives import DISK, EPSILON, NOTICE, Line, Lives, Process, say

ADDRESS = 60.0
"""docs/operating.md, How it behaves: a task that does not answer at its address has 60 s."""
SECONDS = 10.0
"""docs/operating.md, How it behaves: every other task exits with the chief's code within seconds."""


def result_of_success(lives: Lives) -> Iterator[Line]:
    """Code 0 means that the job has its result: of the chief, and of every task that repeats it.

    docs/architecture.md, A job's life, 6: the chief writes result.json, and then replies "done". docs/operating.md,
    Exit codes: 0 is success. Only on Kubernetes do tasks exit with 0 after a failure (docs/kubernetes.md, How a job
    ends).
    """
    results = [event.at for event in lives.wrote if event.file == "result.json" and event.content]
    for process in lives.processes.values():
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
    the last start of the chief, which the target delays.
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
    starts = [process.start for process in lives.of_task.get(lives.chief, ())]
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

    A chief that has written the result and was killed before its exit has ended the run with 0 too. With a disk that
    is full or read-only a failure cannot be recorded. A stop and another process in its place are no verdicts.
    """
    for run in {process.run for process in lives.of_task.get(lives.chief, ())}:
        processes = [process for process in lives.of_task[lives.chief] if process.run == run]
        verdicts = [(p.end, p.code, f"process {p.number} had ended with") for p in processes if _final(p)]
        numbers = {process.number for process in processes}
        for event in lives.wrote:
            if event.file == "result.json" and event.content and event.process in numbers:
                verdicts.append((event.at, 0, f"process {event.process} had written the result of"))
                break
        if not verdicts:
            continue
        at, code, who = min(verdicts, key=lambda verdict: verdict[0])
        if code and lives.disturbed(at, at, (lives.chief,), DISK):
            continue
        for process in processes:
            if process.end > at + EPSILON and _final(process) and process.code != code:
                yield say(process.end, process.task, f"process {process.number} ends with {process.code}, {who} {code}")


def _final(process: Process) -> bool:
    return process.code is not None and process.code not in (15, 20, 143)  # errors.py, Exit.retryable
