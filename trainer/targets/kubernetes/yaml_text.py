"""YAML that kubectl reads as it was meant: its reader knows more notations of numbers and booleans than PyYAML, and no
surrogate pairs."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

import yaml

_PLAIN = re.compile(r"[A-Za-z/][-A-Za-z0-9_./]*")
_WORDS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}
"""Texts that YAML 1.1 reads as another type (https://yaml.org/type/bool.html)."""


def one_line(value: object) -> str:
    """A value on one line in ASCII: JSON, with characters beyond U+FFFF as YAML escapes them.

    No key may have more than 1,024 characters as it is written (simple keys, https://yaml.org/spec/1.1/).
    """
    text = json.dumps(value, ensure_ascii=False)
    return re.sub(r"[^\x00-\x7e]", lambda m: f"\\u{ord(m[0]):04x}" if m[0] <= "\uffff" else f"\\U{ord(m[0]):08x}", text)


def block(value: Mapping[str, object]) -> str:
    """A mapping, a line for each key."""
    text: str = yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=2**31 - 1, allow_unicode=False)
    return text


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, _: object) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
    quotes = "'" if value.isascii() and value.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=None if plain else quotes)


_Dumper.add_representer(str, _text)
