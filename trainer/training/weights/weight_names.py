"""Pairs the variables of a model with those of a file by name.

Keras numbers the layers to which the user gives no name in the order of their construction in a process (dense,
dense_7), so the same model has other names in another process. Such names are compared by the order of the layers in
their parent.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import keras

Name = tuple[str, ...]
"""The names of the layers that contain a variable, from the outermost one, and its own."""
_NUMBER = re.compile(r"_\d+$")
_DIRECTION = re.compile(r"^(forward|backward)_")
"""How the two layers in a Bidirectional are named (keras/src/layers/rnn/bidirectional.py)."""


@dataclass(frozen=True)
class Slot:
    """A variable, of a model or in a file."""

    name: Name
    shape: tuple[int, ...]
    kind: str
    """NumPy's dtype.kind; f also for bfloat16."""

    def fits(self, other: Slot) -> bool:
        return (self.shape, self.kind) == (other.shape, other.kind)


@dataclass(frozen=True)
class Pairs:
    """The positions of a model's variables and of those in a file that have the same name."""

    positions: dict[int, int]
    part: str = ""
    """What is compared if it is only a part of one of both: "the model's backbone"."""


def pair(model: Sequence[Slot], file: Sequence[Slot], classes: Sequence[str] = ()) -> Pairs:
    """Pairs the variables of a model and a file by names, in the way in which most variables fit.

    Names are compared as they are, then with numbers by order; all of both, then one layer of the model with all of the
    file, then the reverse. The first of several equal ways is taken.

    Args:
        classes: of the model's layers, as in the names that Keras gives.
    """
    known = {*map(snake_case, dir(keras.layers)), *map(snake_case, dir(keras.models)), *classes}
    best, most = Pairs({}), 0
    namings: tuple[Callable[[list[Name]], list[Name]], ...] = (list, lambda names: by_order(names, known))
    for naming in namings:
        ours, theirs = naming([slot.name for slot in model]), naming([slot.name for slot in file])
        for what, left, right in _alignments(ours, theirs):
            positions = _same(left, right)
            fitting = sum(model[i].fits(file[j]) for i, j in positions.items())
            if fitting > most:
                best, most = Pairs(positions, what), fitting
    return best


def by_order(names: Sequence[Name], classes: set[str]) -> list[Name]:
    """Names in which each that Keras gave has the number of its layer among those of its class in its parent."""
    numbers_by_class: dict[Name, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    renamed = []
    for name in names:
        parent: Name = ()
        for part in name[:-1]:
            base = _NUMBER.sub("", part)
            if _DIRECTION.sub("", base) in classes:
                numbers = numbers_by_class[parent][base]
                part = f"{base} {numbers.setdefault(part, len(numbers))}"
            parent = (*parent, part)
        renamed.append((*parent, name[-1]))
    return renamed


def snake_case(name: str) -> str:
    """dense for Dense, as in names that Keras gives (keras/src/utils/naming.py)."""
    return re.sub("([a-z])([A-Z])", r"\1_\2", re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)).lower()


def _alignments(ours: list[Name], theirs: list[Name]) -> Iterator[tuple[str, list[Name | None], list[Name | None]]]:
    yield "", [*ours], [*theirs]
    for prefix in _prefixes(ours):
        yield f"the model's {'/'.join(prefix)}", [_without(prefix, name) for name in ours], [*theirs]
    for prefix in _prefixes(theirs):
        yield f"the file's {'/'.join(prefix)}", [*ours], [_without(prefix, name) for name in theirs]


def _prefixes(names: list[Name]) -> list[Name]:
    return list(dict.fromkeys(name[:length] for name in names for length in range(1, len(name) - 1)))


def _without(prefix: Name, name: Name) -> Name | None:
    return name[len(prefix) :] if name[: len(prefix)] == prefix else None


def _same(ours: Sequence[Name | None], theirs: Sequence[Name | None]) -> dict[int, int]:
    """Positions of equal names; of a name that occurs several times in the order of both, if they have as many."""
    left, right = _positions(ours), _positions(theirs)
    return {
        i: j
        for name in left.keys() & right.keys()
        if len(left[name]) == len(right[name])
        for i, j in zip(left[name], right[name], strict=True)
    }


def _positions(names: Sequence[Name | None]) -> dict[Name, list[int]]:
    positions: dict[Name, list[int]] = defaultdict(list)
    for i, name in enumerate(names):
        if name is not None:
            positions[name].append(i)
    return positions
