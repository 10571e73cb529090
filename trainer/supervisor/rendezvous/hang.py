"""Finds which task the others wait for, and where it is, from the stacks of all tasks at one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from trainer.model_dir.stacks import Frame, Group, Stacks
from trainer.protocol.stacks import IN_EXCHANGE, IN_STEP, STATES, WAITS, WAITS_FOR_DATA, TaskStacks

NAMED = 3
"""Tasks that the line names; it counts the rest."""
_RUNTIME = ("tensorflow/", "keras/", "tf_keras/", "trainer/", "jax/", "torch/")
"""Packages in which a call waits for other tasks, or for its own data."""
_STUCK = ("stopped", "in the kernel")
"""States of a process that by themselves explain a hang."""


class Place(NamedTuple):
    """Where a thread is in the user's code."""

    frame: Frame
    """The innermost call there."""
    entry: str
    """The outermost function there."""
    waits: bool
    """Whether it has called TensorFlow from there, which may wait for the other tasks."""

    def __str__(self) -> str:
        function = self.frame.function
        inside = "" if self.entry in (function, "<module>") else f"in {self.entry}(), "
        return f"{inside}at {self.frame}"


def stacks(answers: Mapping[str, TaskStacks], time: float) -> Stacks:
    """
    Args:
        answers: by task.
        time: of the question, in seconds since the epoch.
    """
    in_the_cluster = {name: each for name, each in answers.items() if not name.startswith("evaluator:")}
    return Stacks(time, verdict(in_the_cluster), _groups(answers))


def where(own: TaskStacks) -> str:
    """What a single task does, as a predicate; empty if that is not known."""
    if own.state:
        return f"is {STATES[own.state]}" if own.state in _STUCK else ""
    places = sorted(_places(own), key=lambda place: place.waits)
    return f"is {places[0]}" if places else ""


def verdict(answers: Mapping[str, TaskStacks]) -> str:
    """Which task differs from the others, and where it is; empty if no stack shows that."""
    for state in _STUCK:
        if found := {name: STATES[state] for name, each in answers.items() if each.state == state}:
            return _line(found, answers)
    places = {name: _places(each) for name, each in answers.items() if each.threads}
    return (
        _line(_alone(places, waits=False), answers)
        or _line(_behind(answers), answers)
        or _line(_alone(places, waits=True), answers)
        or _alike(answers)
    )


def _places(own: TaskStacks) -> list[Place]:
    """Of each thread that runs code of the user's, the main thread first."""
    found = []
    for frames in reversed(own.threads):
        theirs = [index for index, frame in enumerate(frames) if frame.theirs]
        if theirs:
            inner = frames[: theirs[0]]
            waits = any(frame.file.startswith(_RUNTIME) for frame in inner)
            found.append(Place(frames[theirs[0]], frames[theirs[-1]].function, waits))
    return found


def _alone(places: Mapping[str, list[Place]], *, waits: bool) -> dict[str, str]:
    """The tasks that are at a place where few others are, with that place.

    Args:
        waits: of the places in which a call of TensorFlow waits. Several of those say nothing: of two tasks that wait
            for each other, each is at one of its own.
    """
    count = Counter(frame for own in places.values() for frame in {place.frame for place in own})
    few = max(1, len(places) // 2)
    found = {}
    for name, own in places.items():
        if rare := [place for place in own if place.waits is waits and count[place.frame] <= few]:
            found[name] = str(min(rare, key=lambda place: count[place.frame]))
    return {} if waits and 2 * len(found) >= len(places) else found


def _behind(answers: Mapping[str, TaskStacks]) -> dict[str, str]:
    """The tasks that wait for a batch while others are in the step; if there are none, those that compute while others
    exchange."""
    doing = {name: each.doing for name, each in answers.items() if each.doing}
    for where in (WAITS_FOR_DATA, IN_STEP):
        found = {name: text for name, text in doing.items() if text.startswith(where)}
        if 0 < len(found) < len(doing):
            return found
    return {}


def _line(found: Mapping[str, str], answers: Mapping[str, TaskStacks]) -> str:
    if not found:
        return ""
    by_text: dict[str, list[str]] = {}
    for name, text in found.items():
        by_text.setdefault(text, []).append(name)
    named = [f"{_names(names)} {text}" for text, names in list(by_text.items())[:NAMED]]
    rest = len(by_text) - len(named)
    others = {name: each for name, each in answers.items() if name not in found}
    return "; ".join([*named, *([f"and {rest} more"] if rest else []), *_waiting(others)])


def _names(names: list[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} is"
    rest = len(names) - NAMED
    return f"{', '.join(names[:NAMED])}{f' and {rest} more' if rest > 0 else ''} are"


def _waiting(others: Mapping[str, TaskStacks]) -> list[str]:
    """Where most of the other tasks are."""
    if not (known := _known(others)):
        return []
    text, _ = Counter(known.values()).most_common(1)[0]
    return [f"the others {'wait for it' if text.startswith((IN_STEP, IN_EXCHANGE)) else 'are'} {text}"]


def _known(answers: Mapping[str, TaskStacks]) -> dict[str, str]:
    """Where each task is: what its loop does or, without one of ours, its place in the user's code."""
    doing = {name: each.doing for name, each in answers.items() if each.doing}
    return doing or {name: str(own[0]) for name, each in answers.items() if (own := _places(each))}


def _alike(answers: Mapping[str, TaskStacks]) -> str:
    """No task differs, or each does."""
    known = _known(answers)
    if not known:
        return ""
    by_place: dict[str, list[str]] = {}
    for name, own in answers.items():
        if name not in known and (own_places := [place for place in _places(own) if not place.waits]):
            by_place.setdefault(str(own_places[0]), []).append(name)
    others = [f"{_names(names)} {place}" for place, names in by_place.items()]
    return "; ".join([_all_alike(known, answers), *others[:NAMED]])


def _all_alike(known: Mapping[str, str], answers: Mapping[str, TaskStacks]) -> str:
    if len(set(known.values())) == 1:
        text, line = next(iter(known.values())), _common_line({name: answers[name] for name in known})
        one = next(iter(known)) if len(known) == 1 else ""
        if text.startswith(WAITS_FOR_DATA):
            wait = f"{one} waits" if one else f"{len(known)} tasks wait"
            return f"{wait}{text.removeprefix(WAITS)}{line}"
        return f"{one} is {text}{line}" if one else f"{len(known)} tasks are {text}{line}"
    return "; ".join(f"{name} is {text}" for name, text in list(known.items())[:NAMED])


def _common_line(answers: Mapping[str, TaskStacks]) -> str:
    """The line of the user's code that all these tasks are at, in parentheses; empty if they are at none, or if what
    they do is named by it already."""
    places = [_places(own) for own in answers.values()]
    common = [each for each in places[0] if all(each.frame in {other.frame for other in own} for own in places)]
    if not common or not all(own.doing for own in answers.values()):
        return ""
    frame = min(common, key=lambda place: place.waits).frame
    return f" ({frame.file}:{frame.line})"


def _groups(answers: Mapping[str, TaskStacks]) -> list[Group]:
    """Tasks whose threads are at the same places, the smallest group first."""
    groups: dict[tuple[object, ...], Group] = {}
    for name, own in sorted(answers.items()):
        notable = [frames for frames in own.threads[:-1] if any(frame.theirs for frame in frames)]
        threads = [*notable, *own.threads[-1:]]
        key = (own.state, own.doing, *sorted(tuple(frames) for frames in threads))
        group = groups.setdefault(key, Group([], own.state, own.doing, threads))
        group.tasks.append(name)
    return sorted(groups.values(), key=lambda group: len(group.tasks))
