"""What is promised of the files that the chief keeps in model_dir."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.simulation.lives import AWAY, DISK, EPSILON, LEASE_READ, NOTICE, Line, Lives, Process, say
from tests.simulation.trace import CheckpointWritten, Wrote

KINDS = frozenset(
    ("began", "formed", "lost", "stalled", "restarted", "hung", "slow", "checkpoint", "score", "ended", "")
)
FIELDS = ("time", "kind", "generation", "step", "text", "term")
HANDOVER = 5.0
"""docs/clusters.md, Lost nodes: the successor waits for an evicted chief, at most deadlines.stop and 5 s."""


def only_the_newest_chief_writes(lives: Lives) -> Iterator[Line]:
    """Once a later chief has the lease, an earlier one writes nothing to model_dir, and does not take the lease back.

    docs/clusters.md, Lost nodes: a chief writes only while it has the lease. docs/operating.md, How it behaves: a
    chief that comes back ends before it writes anything. What happened: a line of an earlier chief behind one of a
    later chief does not count, so a line of the journal may come late if its term is the earlier one.

    A chief reads the lease every 2 s, so it has that long; with a slow disk a write that had begun needs longer. A
    chief that does not have the lease yet writes nothing while the other one lives. Logs are those of all tasks.
    """
    holder, number, since, held = 0, None, 0.0, set[int]()
    for event in lives.wrote:
        process = event.process
        if event.task != lives.chief or event.file.startswith("logs/"):
            continue
        if event.file == "lease.json":
            if event.content and process != holder:
                if process in held:
                    yield say(event.at, event.task, f"process {process} takes the lease back from process {holder}")
                holder, number, since = process, _number(event.content), event.at
                held.add(process)
            continue
        if process == holder or not holder:
            continue
        if process > holder and process not in held:
            if lives.processes[holder].end > event.at:
                yield say(
                    event.at, event.task, f"process {process} writes {event.file}, process {holder} has the lease"
                )
            continue
        slow = lives.faults_of((event.task,), frozenset(("disk slow",)))
        over = max([since, *(fault.until for fault in slow if fault.at <= event.at)])
        if event.at <= over + LEASE_READ or (event.file == "journal.jsonl" and _earlier(event, number)):
            continue
        text = f"process {process} writes {event.file}, process {holder} has the lease since {since:.1f} s"
        yield say(event.at, event.task, text)


def _number(lease: bytes) -> int | None:
    content = _object(lease)
    number = content.get("number") if content else None
    return number if isinstance(number, int) else None


def _earlier(event: Wrote, number: int | None) -> bool:
    """Whether all these lines of the journal have an earlier term."""
    facts = [_object(line) for line in event.content.splitlines()]
    terms = [fact.get("term") for fact in facts if fact]
    return number is None or all(isinstance(term, int) and term < number for term in terms)


def _object(content: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(content)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def no_checkpoint_of_an_earlier_chief(lives: Lives) -> Iterator[Line]:
    """A chief whose place another has taken trains on only until it reads the lease, so its child writes no
    checkpoint later.

    docs/clusters.md, Lost nodes: it reads the lease every 2 s; its programs end by SIGKILL. One that was suspended,
    or whose disk is slow, reads it once that is over.
    """
    takes: list[Wrote] = []
    for event in lives.wrote:
        if event.file == "lease.json" and event.content and not (takes and takes[-1].process == event.process):
            takes.append(event)
    if len(takes) < 2:
        return
    for point in lives.checkpoints:
        taken = next((take for take in takes if take.process > point.process), None)
        if taken is not None and point.at > _read(lives, point, taken.at) + LEASE_READ + EPSILON:
            text = f"child {point.child} of process {point.process} writes the checkpoint of step {point.step}: "
            yield say(point.at, point.task, f"{text}process {taken.process} has the lease since {taken.at:.1f} s")


def _read(lives: Lives, point: CheckpointWritten, taken: float) -> float:
    """When an earlier chief has read the lease at the latest, but for the time between two looks."""
    waits = lives.faults_of((point.task,), frozenset(("freeze", "disk slow")))
    return max([taken, *(fault.until for fault in waits if fault.at <= point.at)])


def a_successor_waits(lives: Lives) -> Iterator[Line]:
    """The successor of a chief that was asked to stop takes the lease when that one is done.

    docs/clusters.md, Lost nodes: it waits at most deadlines.stop and 5 s. A chief that gives up the lease is done.
    Not judged if the chief cannot be reached, or a clock is wrong.
    """
    limit = lives.history.spec.deadlines.stop + HANDOVER
    holder: Wrote | None = None
    for event in lives.wrote:
        if event.file != "lease.json":
            continue
        if holder is not None and event.content and event.process != holder.process:
            old = lives.processes[holder.process]
            soon = old.asked <= event.at < old.asked + limit - 1 and old.end > event.at + 1 and holder.at < old.asked
            kinds = AWAY | DISK | {"clock"}
            if soon and not lives.disturbed(old.asked - NOTICE, event.at, (lives.chief,), kinds):
                text = f"process {event.process} takes the lease, and process {old.number} still stops"
                yield say(event.at, event.task, text)
        holder = event


def terms_increase(lives: Lives) -> Iterator[Line]:
    """A later chief's lines have a higher term in the journal.

    docs/operating.md, What happened: `term` is the number of the chief's lease, and tells an earlier chief's lines.
    """
    first: dict[int, tuple[Wrote, int]] = {}
    for event in lives.wrote:
        if event.file == "journal.jsonl" and event.process not in first:
            fact = _object(event.content.split(b"\n", 1)[0]) or {}
            if isinstance(fact.get("term"), int):
                first[event.process] = event, fact["term"]
    for (process, (_, earlier)), (later, (event, term)) in pairwise(sorted(first.items())):
        if term <= earlier and not lives.disturbed(0, event.at, (lives.chief,), DISK):
            text = (
                f"process {later} writes lines of term {term} to the journal, process {process} those of term {earlier}"
            )
            yield say(event.at, event.task, text)


def lines_of_the_journal(lives: Lives) -> Iterator[Line]:
    """Each line of the journal is a JSON object with time, kind, generation, step, text and term, and a known kind.

    docs/operating.md, What happened.
    """
    terms: dict[int, object] = {}
    for event in lives.wrote:
        if event.file != "journal.jsonl" or not event.content:
            continue
        for line in event.content.splitlines():
            fact = _object(line)
            missing = [name for name in FIELDS if name not in fact] if fact is not None else []
            if fact is None:
                yield say(
                    event.at, event.task, f"process {event.process} writes no JSON object to the journal: {line!r}"
                )
            elif missing or fact["kind"] not in KINDS:
                lacks = f"no {missing[0]}" if missing else f"the kind {fact['kind']!r}"
                yield say(
                    event.at, event.task, f"a line that process {event.process} writes to the journal has {lacks}"
                )
            elif terms.setdefault(event.process, fact["term"]) != fact["term"]:
                yield say(event.at, event.task, f"process {event.process} writes lines of two terms to the journal")


def facts(lives: Lives, kind: str) -> Iterator[tuple[Wrote, dict[str, Any]]]:
    """The lines of the journal of a kind."""
    word = f'"{kind}"'.encode()
    for event in lives.wrote:
        if event.file == "journal.jsonl" and word in event.content:
            for line in event.content.splitlines():
                fact = _object(line) if word in line else None
                if fact is not None and fact.get("kind") == kind:
                    yield event, fact


def generations_in_the_journal(lives: Lives) -> Iterator[Line]:
    """The journal has each generation that has formed.

    docs/operating.md, What happened: the chief writes what happens at once; if the journal cannot be written the
    lines wait.
    """
    formed = {fact.get("number"): event.at for event, fact in reversed(list(facts(lives, "formed")))}
    for generation, orders in lives.generations.items():
        first = orders[0]
        chief = lives.running(lives.chief, first.at)
        alive = chief is not None and chief.end > first.at + NOTICE
        if not alive or lives.disturbed(first.at - NOTICE, first.at + NOTICE, (lives.chief,), DISK | {"freeze"}):
            continue
        if formed.get(generation, first.at + 2 * NOTICE) > first.at + NOTICE:
            yield say(first.at, first.task, f"generation {generation} begins, and the journal does not have it")


def end_in_the_files(lives: Lives) -> Iterator[Line]:
    """The journal has the end of each chief that led the job and was not killed, with its exit code.

    docs/operating.md, What happened: the kind `ended`, and `code`. One that another process replaced writes nothing. On
    Kubernetes one that is asked to stop leaves the job to the next one (docs/clusters.md): that is no end.
    """
    ended = {(event.process, fact.get("code")) for event, fact in facts(lives, "ended")}
    for process in _led(lives):
        if lives.history.on_kubernetes and process.code == 143:
            continue
        if (process.number, process.code) not in ended:
            yield say(
                process.end, process.task, f"process {process.number} ends with {process.code}: not in the journal"
            )


def state_of_the_end(lives: Lives) -> Iterator[Line]:
    """At the end state.json has the chief's exit code; if the job is complete, there is none.

    docs/operating.md, Status and metrics: state.json keeps the code and the message until the next start; Contents of
    model_dir: it is there until the job is complete.
    """
    last = lives.of_task[lives.chief][-1] if lives.chief in lives.of_task else None
    if last is None or last not in _led(lives):
        return
    state = lives.history.files.get("state.json")
    if last.code == 0 and state:
        yield say(last.end, last.task, f"process {last.number} ends with 0, and leaves state.json")
    if last.code and not (state and _holds(_object(state), last.code)):
        yield say(last.end, last.task, f"process {last.number} ends with {last.code}, and state.json does not have it")


def _led(lives: Lives) -> list[Process]:
    """Chiefs that led the job, and ended by themselves with a verdict that they could write."""
    leased = {event.process for event in lives.wrote if event.file == "lease.json" and event.content}
    found = []
    for process in lives.of_task.get(lives.chief, ()):
        led = process.number in leased and process.ordered < process.end and process.code not in (None, 1, 20)
        lost = any(other.start < process.end and other.number > process.number for other in lives.of_task[lives.chief])
        if led and not lost and not lives.disturbed(process.end - NOTICE, process.end, (lives.chief,), DISK | {"host"}):
            found.append(process)
    return found


def _holds(value: object, code: int) -> bool:
    values = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return any((each == code and isinstance(each, int)) or _holds(each, code) for each in values)


def result_is_right(lives: Lives) -> Iterator[Line]:
    """result.json has the job's steps, its last generation, and a warning if the evaluator failed.

    docs/operating.md, Contents of model_dir; When a job resumes: `generations` is the last number; How it behaves: an
    evaluator that fails is a warning there, and it alone exits with 17.
    """
    content = lives.history.files.get("result.json")
    if not content or lives.lie:
        return
    at, result = lives.history.ended, _object(content)
    if result is None:
        yield say(at, lives.chief, "result.json is no JSON object")
        return
    if lives.target is not None and result.get("steps", lives.target) != lives.target:
        yield say(at, lives.chief, f"result.json has {result['steps']} steps, and the job {lives.target}")
    last = max((order.generation for order in lives.orders if order.task == lives.chief), default=0)
    generations = result.get("generations", last)
    if isinstance(generations, int) and generations < last:
        yield say(at, lives.chief, f"result.json has {generations} generations, and the last one was {last}")
    for process in lives.processes.values():
        if process.task.startswith("evaluator") and process.code == 17 and not result.get("warnings", True):
            yield say(
                process.end, process.task, f"process {process.number} ends with 17, and result.json has no warning"
            )
