"""Parses users' YAML and reports each mistake in one line with its position."""

from __future__ import annotations

import yaml

from trainer.job.errors import UserError


class UniqueKeyLoader(yaml.SafeLoader):
    """SafeLoader that refuses a duplicate key; PyYAML silently keeps the last one."""

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


def parse(text: str, source: str) -> object:
    try:
        return yaml.load(text, Loader=UniqueKeyLoader)  # noqa: S506 (a SafeLoader)
    except Exception as error:
        raise not_yaml(error, source) from None


def not_yaml(error: Exception, source: str) -> UserError:
    """Formats PyYAML's error in one line with its position. Accepts any exception, because PyYAML propagates those of
    constructors: KeyError for `!!bool x`."""
    mark = getattr(error, "problem_mark", None)
    where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
    parts = [part for name in ("context", "problem") if (part := getattr(error, name, None))]
    return UserError(f"{where}: not valid YAML: {' '.join((', '.join(parts) or str(error)).split())}")
