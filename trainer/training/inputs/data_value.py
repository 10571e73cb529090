"""Checks and wraps what a workload's data functions give."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import keras
import numpy as np
import tensorflow as tf

from trainer.job.errors import UserError
from trainer.training.inputs.arrays import Arrays
from trainer.training.inputs.datasets import Batches, Examples, Tell
from trainer.training.inputs.objects import not_numbers
from trainer.training.inputs.source import Split
from trainer.workloads.batched import Batched
from trainer.workloads.types import Dataset, Tensor

NAMES = ("x", "y", "the weights")
_ARRAY_PROTOCOLS = ("__array__", "__array_interface__", "__dlpack__", "__tf_tensor__", "tocsr")
"""Attributes that only arrays have. tocsr is that of SciPy's sparse matrices, which `_tensors` refuses."""
_VALUES = (bool, int, float, complex, str, bytes, range, tf.RaggedTensor, tf.SparseTensor)
"""Types of values that tf.constant takes, alone or in lists."""
TWO_SPLITS = (
    "gave two pairs, as keras.datasets' load_data() does: return one of them, train if shard.split == 'train' else test"
)
_FORMS = "x, (x, y) or (x, y, sample_weight), each an array, or a tuple or dict of arrays"


def source(value: object, what: str, tell: Tell = lambda _: None) -> Split:
    """Wraps the return value of a workload's data function.

    Args:
        what: the call, for messages.
        tell: takes lines for the log, while batches are read.

    Raises:
        UserError: it is neither arrays of equal length nor a Dataset.
    """
    if isinstance(value, Batched):
        return Batches(_batches(value.dataset, what), what, tell)
    if isinstance(value, tf.data.Dataset):
        return Examples(_dataset(value, what), what)
    if value is None:
        raise UserError(f"workload: {what}: gave None; return {_FORMS}, or a tf.data.Dataset")
    if isinstance(value, list):
        raise UserError(f"workload: {what}: {_no_array(value) or f'gave a list; write a tuple: {_FORMS}'}")
    returned = value if isinstance(value, tuple) else (value,)
    if not 1 <= len(returned) <= len(NAMES):
        raise UserError(
            f"workload: {what}: gave a tuple of {len(returned)}; it must be {_FORMS}: several inputs go into a tuple "
            "or dict inside"
        )
    if len(returned) > 1 and returned[1] is None:
        raise UserError(f"workload: {what}: y is None; leave it out: give x alone, or (x, y)")
    returned = returned[:2] if len(returned) == 3 and returned[2] is None else returned
    for problem in (*map(_no_array, returned), _list_of_examples(returned)):
        if problem is not None:
            raise UserError(f"workload: {what}: {problem}")
    try:
        parts = tuple(_tensors(part) for part in returned)
    except (TypeError, ValueError) as error:
        problem = next(filter(None, map(not_numbers, NAMES, returned)), None)
        problem = problem or f"must give arrays: {' '.join(str(error).split())[:200]}"
        raise UserError(f"workload: {what}: {problem}") from None
    _require_equal_lengths(parts, what)
    if len(parts) == len(NAMES):
        _require_fitting_weights(parts[1], parts[2], what, batched=True)
    return Arrays(keras.utils.pack_x_y_sample_weight(*parts))


def _batches(value: Dataset, what: str) -> Dataset:
    if not isinstance(value, tf.data.Dataset):
        raise UserError(f"workload: {what}: trainer.batched() takes a tf.data.Dataset, got {type(value).__name__}")
    if any(part.shape.rank == 0 for part in tf.nest.flatten(_dataset(value, what, batched=True).element_spec)):
        raise UserError(
            f"workload: {what}: trainer.batched() got a Dataset of single examples; call .batch(...) before, or leave "
            "it out"
        )
    return value


def _dataset(value: Dataset, what: str, batched: bool = False) -> Dataset:
    spec = value.element_spec
    if isinstance(spec, tuple) and not 1 <= len(spec) <= len(NAMES):
        raise UserError(
            f"workload: {what}: the Dataset yields tuples of {len(spec)}; it must yield x, (x, y) or "
            "(x, y, sample_weight): several inputs go into a tuple or dict inside"
        )
    if isinstance(spec, tuple) and len(spec) == len(NAMES):
        _require_fitting_weights(spec[1], spec[2], what, batched)
    return value


def _no_array(part: object) -> str | None:
    """What is wrong with a part that is not made of arrays, with the way out; None if nothing is.

    tf.constant takes whatever has a length and items for a sequence: of a PyDataset it makes one array, whose examples
    are batches.
    """
    if isinstance(part, list) and part and all(map(_is_example, part)):
        names = next(iter(part)) if isinstance(part[0], dict) else (0, 1)
        x, *_ = (f"np.stack([each[{name!r}] for each in examples])" for name in names)
        return f"gave a list of examples; stack them: x = {x}, and y likewise"
    if isinstance(part, dict | tuple | list):
        return next(filter(None, map(_no_array, part.values() if isinstance(part, dict) else part)), None)
    if np.ma.is_masked(part):
        return "gave a masked array, of which the values below the mask would be taken; fill it: array.filled(value)"
    if isinstance(part, _VALUES) or any(hasattr(part, name) for name in _ARRAY_PROTOCOLS) or _is_buffer(part):
        return None
    gave = f"gave a value of type {type(part).__name__}"
    if isinstance(part, tf.data.Dataset | Batched):
        return f"{gave} in a tuple; return it alone: it yields x, (x, y) or (x, y, sample_weight)"
    if isinstance(part, keras.utils.PyDataset):
        return (
            f"{gave}, a PyDataset; join its batches: x = np.concatenate([batches[i][0] for i in range(len(batches))]), "
            "and y likewise, or give a tf.data.Dataset of the files that it reads"
        )
    if columns := getattr(part, "column_names", None):  # of Hugging Face's datasets
        return f"{gave}, which is no array; give its columns as arrays: np.asarray(dataset[{columns[0]!r}])"
    if isinstance(part, Mapping):
        names = ", ".join(map(repr, [*part][:4]))
        return f"{gave}, with {names}; give a dict of arrays, as dict(value), or x and y out of it"
    if hasattr(part, "__len__") and hasattr(part, "__getitem__"):
        return (
            f"{gave}, which is no array; stack its examples: x = np.stack([examples[i][0] for i in "
            "range(len(examples))]), and y likewise"
        )
    if hasattr(part, "__iter__"):
        return f"{gave}, which has no order; return arrays, or tf.data.Dataset.from_generator(function, ...)"
    return f"{gave}, which is no array; return {_FORMS}, or a tf.data.Dataset"


def _is_example(value: object) -> bool:
    if isinstance(value, dict):
        return bool(value)
    return isinstance(value, tuple) and len(value) > 1 and hasattr(value[0], "shape")


def _is_buffer(part: object) -> bool:
    """Whether it is an array of Python's own, such as array.array."""
    try:
        return memoryview(part).ndim > 0  # type: ignore[arg-type]
    except TypeError:
        return False


def _list_of_examples(returned: tuple[object, ...]) -> str | None:
    """As `_no_array`, of a list that has an array for each example: each array would be an input or output."""
    leaves = [leaf for name, part in zip(NAMES, returned, strict=False) for leaf in _leaves(name, part)]
    if len(leaves) == 1 or len({_length(part) for _, part in leaves}) != 1:
        return None
    for name, part in leaves:
        if isinstance(part, list) and part and all(map(_has_rows, part)) and len(part) not in {len(a) for a in part}:
            return f"{name} is a list of {len(part)} arrays, one for each example; stack them: np.stack({name})"
    return None


def _leaves(name: str, part: object) -> Iterator[tuple[str, object]]:
    """The arrays and lists of a part, with their names."""
    if not isinstance(part, dict | tuple):
        yield name, part
        return
    for key, each in part.items() if isinstance(part, dict) else enumerate(part):
        yield from _leaves(f"{name}[{key!r}]", each)


def _has_rows(array: object) -> bool:
    return len(getattr(array, "shape", ())) > 0


def _length(part: object) -> int | None:
    return int(part.shape[0]) if _has_rows(part) else len(part) if isinstance(part, list) else None  # type: ignore[attr-defined]


def _tensors(part: object) -> Tensor:
    """An array as a tensor; a dict, tuple or list of arrays as a dict or tuple of tensors."""
    if isinstance(part, dict) and part:
        return {name: _tensors(array) for name, array in part.items()}
    if isinstance(part, tuple) or (isinstance(part, list) and part and all(map(_has_rows, part))):
        return tuple(_tensors(array) for array in part)
    if isinstance(part, tf.SparseTensor) or hasattr(part, "tocsr"):
        raise TypeError("an array is sparse; make it dense: tf.sparse.to_dense(...), or .toarray()")
    return part if isinstance(part, tf.RaggedTensor) else tf.constant(part)


def _require_equal_lengths(parts: Tensor, what: str) -> None:
    flat = tf.nest.flatten(parts)
    if any(each.shape.rank == 0 for each in flat):
        raise UserError(f"workload: {what}: must give arrays, gave single values")
    counts = [int(each.shape[0]) for each in flat]
    if set(counts) == {counts[0]} != {0}:
        return
    if of_load_data(parts):
        lengths = f"{TWO_SPLITS}; the arrays have {counts} examples"
    elif len(counts) == 2 == len(parts):
        lengths = f"x has {counts[0]} examples and y {counts[1]}"
    else:
        lengths = f"its arrays have {counts} examples"
    raise UserError(f"workload: {what}: {lengths}; they must be equal, not 0")


def of_load_data(parts: Tensor) -> bool:
    """Whether (x, y) may be ((x, y), (x, y)) of two splits: both have two parts, of the same types and shapes."""
    if not (isinstance(parts, tuple) and len(parts) == 2 and all(isinstance(p, tuple) and len(p) == 2 for p in parts)):
        return False
    flat = tf.nest.flatten(parts)
    return len(flat) == 4 and all(
        (one.dtype, one.shape[1:].as_list()) == (other.dtype, other.shape[1:].as_list())
        for one, other in zip(flat[:2], flat[2:], strict=True)
    )


def _require_fitting_weights(y: Tensor, weights: Tensor, what: str, batched: bool) -> None:
    """Checks the shapes of weights, one for all of y or of the same structure; `batched` if these begin with a batch's.

    Keras multiplies losses by them after broadcasting, which may well succeed with others and train wrongly.

    Raises:
        UserError: neither one weight per example, nor one for each of its values.
    """
    labels, flat_weights = tf.nest.flatten(y), tf.nest.flatten(weights)
    if len(labels) != len(flat_weights):
        return  # Keras has a rule for what may be left out
    for label, weight in zip(labels, flat_weights, strict=True):
        if None in (label.shape.rank, weight.shape.rank):
            continue
        wanted, shape = label.shape[int(batched) :], weight.shape[int(batched) :]
        if shape == [1] or (shape.rank <= wanted.rank and shape.is_compatible_with(wanted[: shape.rank])):
            continue
        raise UserError(
            f"workload: {what}: sample weights of shape {weight.shape.as_list()} do not fit y of shape "
            f"{label.shape.as_list()}; give one weight per example"
        )
