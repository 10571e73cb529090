"""JSON files written by other programs."""

import pytest

from trainer.model_dir.files import json_object


@pytest.mark.parametrize("text", ["", "cut o", "[1]", "3", "null", b"\xff\xfe\xff", "[" * 100_000, '{"a": '])
def test_what_is_no_json_object_counts_as_an_empty_one(text: str | bytes) -> None:
    assert json_object(text) == {}


def test_a_json_object_is_read() -> None:
    assert json_object(b'{"steps": 5, "result": {"y": [1]}}') == {"steps": 5, "result": {"y": [1]}}
