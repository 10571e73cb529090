"""YAML as kubectl's reader and PyYAML both read it."""

from __future__ import annotations

import yaml
from hypothesis import given
from hypothesis import strategies as st

from trainer.targets.kubernetes import yaml_text

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(
        ["y", "No", "on", "1e3", "0o17", "1_000", "~", "null", ".inf", "-", "2024-05-01", "=", "a: b", "\U0001f680"]
    ),
)
KEYS = TEXTS.filter(lambda text: len(yaml_text.one_line(text)) <= 1024)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(1e-3, 1e6), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_what_is_written_is_read_again(value: dict[str, object]) -> None:
    for text in (yaml_text.block(value), yaml_text.one_line(value)):
        assert text.isascii()
        assert yaml.safe_load(text) == value
    assert "\n" not in yaml_text.one_line(value)


def test_only_words_that_each_reader_takes_for_texts_have_no_quotes() -> None:
    text = yaml_text.block({"y": "abc", "n": "1e3", "a/b.c": "No", "d": "\U0001f680"})
    assert text == """'y': abc\n'n': '1e3'\na/b.c: 'No'\nd: "\\U0001F680"\n"""
