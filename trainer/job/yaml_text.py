"""Parses users' YAML and reports each mistake in one line with its position."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import yaml

from trainer.job.errors import UserError

MAX_VALUES = 100_000
"""The most values that the aliases of a document may add to it. A kilobyte of aliases of aliases can add more than any
memory holds."""
MAX_DEPTH = 100
"""Levels of mappings and lists within each other, far below what Python can recurse."""
MAX_DIGITS = 100
"""The longest number, in characters. Python refuses to print one of more than 4,300 digits, wherever it gets to."""
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")


class LimitError(yaml.MarkedYAMLError):
    """YAML that exceeds a limit above."""

    def __init__(self, problem: str, mark: yaml.Mark) -> None:
        super().__init__(problem=problem, problem_mark=mark)


class BoundedLoader(yaml.SafeLoader):
    """SafeLoader that refuses what exceeds a limit, and a duplicate key: PyYAML silently keeps the last one."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _too_deep(self.peek_event().start_mark)  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def compose_mapping_node(self, anchor: dict[object, yaml.Node]) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"key {key.value!r} is given twice", key.start_mark
                    )
                seen.add(key.value)
        return node

    def construct_document(self, node: yaml.Node) -> object:
        _measure(node, {})
        return super().construct_document(node)


class _Size(NamedTuple):
    """What a node stands for."""

    values: int
    depth: int


def _measure(node: yaml.Node, known: dict[int, _Size | None]) -> _Size:
    """Measures a node, and all nodes within it once: an alias is the node that it stands for.

    Args:
        known: the sizes of nodes by id; None while a node is being measured.

    Raises:
        LimitError: the node exceeds a limit, or has itself within it.
    """
    if id(node) in known:
        size = known[id(node)]
        if size is None:
            raise LimitError("has an alias of itself within; write the value", node.start_mark)
        return size
    known[id(node)] = None
    values, depth = 1, 0
    for each in _within(node):
        size = _measure(each, known)
        values, depth = values + size.values, max(depth, size.depth)
        if values > MAX_VALUES + len(known):
            raise LimitError(f"stands for more than {MAX_VALUES:,} values by its aliases; write fewer", node.start_mark)
    if depth >= MAX_DEPTH:
        raise _too_deep(node.start_mark)
    if node.tag in _NUMBERS and len(node.value) > MAX_DIGITS:
        raise LimitError(f"a number of {len(node.value):,} characters; write at most {MAX_DIGITS}", node.start_mark)
    known[id(node)] = measured = _Size(values, depth + 1)
    return measured


def _within(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from pair
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _too_deep(mark: yaml.Mark) -> LimitError:
    return LimitError(f"is more than {MAX_DEPTH} levels deep; write fewer", mark)


def parse(text: str, source: str) -> object:
    """The value of a document.

    Raises:
        UserError: it is not YAML, has a key twice, or exceeds a limit above.
    """
    try:
        return yaml.load(text, Loader=BoundedLoader)  # noqa: S506 (a SafeLoader)
    except Exception as error:
        raise not_yaml(error, source) from None


def not_yaml(error: Exception, source: str) -> UserError:
    """Formats PyYAML's error in one line with its position. Accepts any exception, because PyYAML propagates those of
    constructors: KeyError for `!!bool x`."""
    mark = getattr(error, "problem_mark", None)
    where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
    parts = [part for name in ("context", "problem") if (part := getattr(error, name, None))]
    rule = "" if isinstance(error, LimitError) else "not valid YAML: "
    return UserError(f"{where}: {rule}{' '.join((', '.join(parts) or str(error)).split())}")
