from typing import Any

import numpy as np
import pytest

from trainer.training.inputs.objects import not_numbers


class Table:
    """Columns and types as a DataFrame of pandas has them."""

    def __init__(self, **types: str) -> None:
        self.columns, self.dtypes = list(types), list(types.values())

    def __array__(self, *_: Any, **__: Any) -> Any:
        return np.array([["a", 1.0]], dtype=object)


# Each: a part, and what is wrong with it.
PARTS: list[tuple[Any, str | None]] = [
    (
        np.array([["abc", 1.0]], dtype=object),
        "x is an array of objects, str at [0, 0], float at [0, 1]; an array has one",
    ),
    (
        np.array([["a", "b"], ["c", None]], dtype=object),
        "x is an array of objects, str at [0, 0], NoneType at [1, 1]; ",
    ),
    (np.array([True, 2.0], dtype=object), "x is an array of objects, bool at [0], float at [1]; an array has one type"),
    ({"a": [1, 2], "b": np.array(["a", 1.0], dtype=object)}, "x['b'] is an array of objects, str at [0], float at [1]"),
    (([1, 2], np.array([3, 4], dtype=object)), "x[1] is an array of objects, int at [0]; an array has one type"),
    (np.array(["2020-01-01"], "datetime64[D]"), "x is an array of datetime64[D], of which TensorFlow makes no tensor"),
    (Table(size="float64", colour="object"), "x is a table with column 'colour' of type object, and an array has one"),
    (
        Table(a="category", b="Int64", c="str"),
        "x is a table with column 'a' of type category, column 'c' of type str, ",
    ),
    (Table(**{f"c{i}": "object" for i in range(6)}), "x is a table with column 'c0' of type object, column 'c1' of t"),
    (
        np.array([[1, 2], [3]], dtype=object),
        "x has sequences of different lengths, of which there is no array; give tf",
    ),
    (
        [[1, 2], [3]],
        "x has sequences of different lengths, of which there is no array; give tf.ragged.constant(x), or a",
    ),
    (np.zeros(3, [("a", "i4"), ("b", "f4")]), "x is an array of records, with field 'a', field 'b'; give a dict of ar"),
    (np.array([1.5]), None),
    (np.array(["a"]), None),
]


@pytest.mark.parametrize(("part", "problem"), PARTS, ids=range(len(PARTS)))
def test_what_tensorflow_makes_no_tensor_of_is_named_with_its_place(part: Any, problem: str | None) -> None:
    found = not_numbers("x", part)
    assert found is None if problem is None else str(found).startswith(problem)
