"""Limits of YAML. Mistakes in YAML: test_load.py."""

import math
from itertools import pairwise

import pytest

from trainer.job.errors import UserError
from trainer.job.yaml_text import MAX_DEPTH, MAX_VALUES, parse

NAMES = "abcdefghijkl"
GROWING = "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]\n" for before, name in pairwise(NAMES)
)
"""12 lists, the last of which stands for 9 ** 12 numbers."""
MERGED = "a: &a {x: 1}\n" + "".join(
    f"{name}: &{name} {{{', '.join(f'{name}{i}: *{before}' for i in range(9))}}}\n" for before, name in pairwise(NAMES)
)
CHAIN = "- &a0 [1]\n" + "".join(f"- &a{i + 1} [*a{i}]\n" for i in range(MAX_DEPTH))
TOO_DEEP = f"is more than {MAX_DEPTH} levels deep; write fewer"

# Each: a document, its line and column that are named, and what is said of it.
BEYOND = [
    (GROWING, "6:4", "stands for more than 100,000 values by its aliases; write fewer"),
    (MERGED, "6:4", "stands for more than 100,000 values by its aliases; write fewer"),
    ("[" * 5000, f"1:{MAX_DEPTH + 1}", TOO_DEEP),
    ("{a: " * 5000, f"1:{4 * MAX_DEPTH - 2}", TOO_DEEP),
    (CHAIN, "100:3", TOO_DEEP),
    ("a: &a [1, *a]", "1:4", "has an alias of itself within; write the value"),
    ("a: &a {b: {c: *a}}", "1:4", "has an alias of itself within; write the value"),
    ("a:\n  b: 0x" + "f" * 4000, "2:6", "a number of 4,002 characters; write at most 100"),
    ("a: " + "1:" * 60 + "1", "1:4", "a number of 121 characters; write at most 100"),
    ("a: 0." + "3" * 100, "1:4", "a number of 102 characters; write at most 100"),
]


@pytest.mark.timeout(10)
@pytest.mark.parametrize(("text", "place", "problem"), BEYOND, ids=range(len(BEYOND)))
def test_a_document_beyond_a_limit_is_refused_in_one_line(text: str, place: str, problem: str) -> None:
    with pytest.raises(UserError) as caught:
        parse(text, "job.yaml")
    assert str(caught.value) == f"job.yaml:{place}: {problem}"


def test_what_people_write_is_within_the_limits() -> None:
    assert parse("a: &a [1, 2]\nb: *a\nc: {<<: &m {x: 1}, y: *a}\nd: [*m, *m]", "job.yaml") == {
        "a": [1, 2],
        "b": [1, 2],
        "c": {"x": 1, "y": [1, 2]},
        "d": [{"x": 1}, {"x": 1}],
    }
    assert parse("a: 18446744073709551615\nb: 3.141592653589793238462643", "j") == {"a": 2**64 - 1, "b": math.pi}
    assert parse(f"a: '{'9' * 5000}'", "job.yaml") == {"a": "9" * 5000}
    assert parse("[" * (MAX_DEPTH - 1) + "]" * (MAX_DEPTH - 1), "job.yaml")
    values = parse("- x\n" * (MAX_VALUES + 1), "job.yaml")
    assert isinstance(values, list)
    assert len(values) == MAX_VALUES + 1, "a long document is as long as it looks"
