"""A history for people: a line for each thing that happened, with its time, its process, and what the chief knew."""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.simulation import trace
from tests.simulation.trace import History


def lines(history: History) -> Iterator[str]:
    """Steps that follow each other are one line."""
    width = max(len(task) for task in history.tasks) + 4
    steps: list[trace.StepMade] = []
    for event in history.events:
        if isinstance(event, trace.StepMade):
            steps.append(event)
            continue
        yield from _steps(steps, width)
        steps = []
        if text := _text(event):
            yield _line(event, text, width)
    yield from _steps(steps, width)
    left = ", ".join(history.left) or "nothing"
    yield f"{history.ended:8.2f} s  {'':{width}} the end: exit codes {history.outcome}, left: {left}"


def _line(event: trace.Event, text: str, width: int) -> str:
    who = f"{event.task} #{event.process}" if event.process else event.task or "world"
    return f"{event.at:8.2f} s  {who:{width}} {text}"


def _steps(steps: list[trace.StepMade], width: int) -> Iterator[str]:
    for child in dict.fromkeys(each.child for each in steps):
        of_child = [each for each in steps if each.child == child]
        one, last = of_child[0], of_child[-1]
        numbers = f"step {one.step}" if one is last else f"steps {one.step} to {last.step}"
        yield _line(one, f"child {child} makes {numbers} in generation {one.generation}", width)


def _text(event: trace.Any) -> str:
    match event:
        case trace.Started(host=host, run=run):
            return f"starts, on {host}, {run}"
        case trace.Exited(code=code):
            return f"exits with {code}"
        case trace.Killed():
            return "is killed"
        case trace.AskedToStop():
            return "gets SIGTERM"
        case trace.ChildStarted(child=child):
            return f"starts child {child}"
        case trace.ChildOrdered(child=child, generation=generation, step=step):
            return f"child {child} begins generation {generation}, from step {step}"
        case trace.ChildEnded(child=child, code=code, by=by):
            return f"child {child} ends with {code}, by {by}"
        case trace.CheckpointWritten(child=child, step=step):
            return f"child {child} has written the checkpoint of step {step}"
        case trace.Fault(kind=kind, until=until):
            return f"FAULT: {kind}{f', until {until:.2f} s' if until > event.at else ''}"
        case trace.Logged(line=line):
            return f"| {line}"
        case trace.Wrote(file="journal.jsonl", content=content):
            return "; ".join(f"notes: {json.loads(line)['text']}" for line in content.splitlines() if line)
        case trace.Wrote(file="lease.json", content=content):
            return f"takes, or gives back, the lease {json.loads(content or b'{}').get('number')}"
        case trace.Wrote(file=("result.json" | "state.json") as file, content=content):
            return f"{'writes' if content else 'removes'} {file}"
    return ""
