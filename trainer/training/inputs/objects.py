"""Values of which TensorFlow makes no tensor: its own errors name neither column nor place."""

from __future__ import annotations

import numpy as np

_NUMBERS, _TEXT = "biuf", "SU"
"""Kinds of NumPy's types."""
_SEQUENCES = {"list", "tuple", "ndarray"}
_SHOWN = 4
"""Columns, or types, that are named."""


def not_numbers(name: str, part: object) -> str | None:
    """Which column or element of a part cannot be in a tensor, with the way out; None if that is not known.

    Args:
        name: x, y or the weights.
    """
    if isinstance(part, list) and len({len(each) for each in part if isinstance(each, list | tuple)}) > 1:
        return _of_different_lengths(name)
    if isinstance(part, dict | tuple | list):
        parts = part.items() if isinstance(part, dict) else enumerate(part)
        return next(filter(None, (not_numbers(f"{name}[{key!r}]", each) for key, each in parts)), None)
    if columns := _columns(part):
        return (
            f"{name} is a table with {_listed(columns)}, and an array has one type; give the columns by name, as "
            "{column: table[column].to_numpy() for column in table}, or numbers alone, by "
            "table.drop(columns=[...]).astype('float32')"
        )
    array = np.asarray(part)
    if array.dtype == object and array.ndim:
        types: dict[str, int] = {}
        for index, value in enumerate(array.flat):
            types.setdefault(type(value).__name__, index)
        if set(types) <= _SEQUENCES:
            return _of_different_lengths(name)
        places = [f"{kind} at {[int(i) for i in np.unravel_index(at, array.shape)]}" for kind, at in types.items()]
        return (
            f"{name} is an array of objects, {_listed(places)}; an array has one type, and no missing values: give "
            "numbers, by .astype('float32'), or text alone; columns of several types are a dict of arrays"
        )
    if array.dtype.kind in (*_TEXT, "O") or (array.dtype.kind in _NUMBERS and array.dtype.itemsize <= 8):
        return None
    if fields := array.dtype.names:
        return (
            f"{name} is an array of records, with {_listed([f'field {field!r}' for field in fields])}; give a dict of "
            f"arrays: {{field: {name}[field] for field in {name}.dtype.names}}"
        )
    return (
        f"{name} is an array of {array.dtype}, of which TensorFlow makes no tensor; give numbers, by .astype('float32')"
    )


def _of_different_lengths(name: str) -> str:
    return (
        f"{name} has sequences of different lengths, of which there is no array; give tf.ragged.constant({name}), or "
        f"all of one length, keras.utils.pad_sequences({name})"
    )


def _columns(part: object) -> list[str]:
    """The columns of a DataFrame that are no numbers."""
    if not (hasattr(part, "columns") and hasattr(part, "dtypes")):
        return []
    kinds = zip(part.columns, map(str, part.dtypes), strict=True)
    return [f"column {column!r} of type {kind}" for column, kind in kinds if not _is_number(kind)]


def _is_number(kind: str) -> bool:
    try:
        return np.dtype(kind.lower()).kind in _NUMBERS
    except TypeError:
        return False


def _listed(what: list[str]) -> str:
    more = [f"and {len(what) - _SHOWN} more"] if len(what) > _SHOWN else []
    return ", ".join([*what[:_SHOWN], *more])
