"""YAML as users write it: every mistake is one line with its place."""

from __future__ import annotations

from typing import Any

import yaml

from trainer.job.errors import UserError


class UniqueKeyLoader(yaml.SafeLoader):
    """SafeLoader that refuses a key given twice; PyYAML keeps the last one in silence."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
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
    """PyYAML's error on one line with its position. Takes any exception, because PyYAML passes on those of
    constructors: KeyError for `!!bool x`."""
    mark = getattr(error, "problem_mark", None)
    where = f"{source}:{mark.line + 1}:{mark.column + 1}" if mark else source
    parts = [part for name in ("context", "problem") if (part := getattr(error, name, None))]
    return UserError(f"{where}: not valid YAML: {' '.join((', '.join(parts) or str(error)).split())}")
