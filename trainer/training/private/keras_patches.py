"""Every part of Keras that trainer replaces, to be reviewed at each upgrade; keras_private.py has those that it reads.

Each function names the source file, the reason, and the test that fails when an upgrade changes what it relies on.
Keras is 3.15.1, or 3.12.4 under Python 3.10. TensorFlow's are in tensorflow_patches.py and tensorflow_private.py.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect
import random
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trainer.workloads.types import Model, Optimizer, Tensor, Variable

if TYPE_CHECKING:
    import keras

_BETWEEN_REPLICAS = 1_640_531_527
"""From the seed of a replica to that of the next: 2**32 divided by the square of the golden ratio."""
AddUp = Callable[[Iterable[tuple[Tensor, Variable]]], list[tuple[Tensor, Variable]]]
"""Returns (sum over replicas, variable) for each (gradient, variable) of one replica."""


def make_counters_atomic() -> None:
    """Replaces `assign_add` and `assign_sub` of Keras' Variable (keras/src/backend/tensorflow/core.py) by TensorFlow's.

    Keras' `iterations.assign_add(1)` reads, adds and writes (keras/src/backend/common/variables.py, keras#18668): two
    workers lose counts. AssignAddVariableOp is atomic on the ps.
    Tests: test_a_patched_keras_counter_is_one_atomic_operation, test_a_patched_optimizer_counts_its_steps_by_it,
    test_a_counter_of_a_train_step_is_atomic_too.
    """
    import keras
    import tensorflow as tf
    from keras.src.backend.common.stateless_scope import get_stateless_scope, in_stateless_scope

    kind = keras.src.backend.tensorflow.core.Variable

    def atomic(name: str) -> Callable[[Variable, Tensor], Tensor]:
        plain = getattr(kind, name)

        def assign(self: Variable, value: Tensor) -> Tensor:
            if in_stateless_scope() and getattr(get_stateless_scope(), "holds", lambda _: True)(self):
                return plain(self, value)
            return getattr(self._value, name)(tf.cast(value, self._value.dtype))

        return assign

    for name in ("assign_add", "assign_sub"):
        setattr(kind, name, atomic(name))


def look_up_rows_only() -> None:
    """Makes `ops.take`, which an Embedding calls, read from a variable only the rows that it looks up
    (keras/src/backend/tensorflow/numpy.py).

    Keras' own reads the variable first: a ps-worker would get the whole table in each step. The rows, and the gradient,
    are the same.
    Test: test_a_patched_embedding_reads_its_rows_only.
    """
    import keras
    import tensorflow as tf
    from keras.src.backend.common.stateless_scope import in_stateless_scope

    numpy = keras.src.backend.tensorflow.numpy
    plain = numpy.take

    def take(x: Tensor, indices: Tensor, axis: int | None = None) -> Tensor:
        special = isinstance(indices, tf.SparseTensor | tf.RaggedTensor) or in_stateless_scope()
        if special or axis != 0 or not isinstance(x, keras.Variable):
            return plain(x, indices, axis)
        rows = keras.ops.convert_to_tensor(indices)
        rows = tf.where(rows < 0, rows + tf.cast(x.shape[0], rows.dtype), rows)
        return x._maybe_autocast(tf.gather(x._value, rows))

    numpy.take = take


def replace_gradient_sum(optimizer: Optimizer, replacement: Callable[[AddUp], AddUp]) -> AddUp:
    """Replaces the sum of gradients over replicas, the first step of an optimizer's `apply`; returns Keras' function.

    That is `TFOptimizer._all_reduce_sum_gradients` (keras/src/backend/tensorflow/optimizer.py). There is no public way
    to sum in another type (gradients.py), or before the decision on an overflow (loss_scale.py).
    Test: test_an_optimizer_adds_up_gradients_by_the_method_that_is_replaced.

    Args:
        replacement: maps Keras' function to its replacement.
    """
    original: AddUp = optimizer._all_reduce_sum_gradients

    def without_none(pairs: Iterable[tuple[Tensor, Variable]]) -> list[tuple[Tensor, Variable]]:
        """Adds up gradients that are not None, as of a variable on which the loss does not depend: Keras' warning about
        it fails."""
        gradients = list(pairs)
        sums = {id(v): g for g, v in original([(g, v) for g, v in gradients if g is not None])}
        return [(sums.get(id(v)), v) for _, v in gradients]

    optimizer._all_reduce_sum_gradients = replacement(without_none)
    return without_none


@contextlib.contextmanager
def noting_created() -> Iterator[dict[int, object]]:
    """Within, all layers, optimizers and metrics that are created, by their ids.

    The classes of all of them call these three (keras/src/layers/layer.py, optimizers/base_optimizer.py,
    metrics/metric.py).
    Test: tests/unit/training/model/test_checks.py.
    """
    import keras
    from keras.src.optimizers.base_optimizer import BaseOptimizer

    created: dict[int, object] = {}

    def noting(original: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(original)
        def begin(self: object, *args: object, **kwargs: object) -> None:
            created[id(self)] = self
            original(self, *args, **kwargs)

        # Keras looks a class's arguments up, which may have no __init__ of its own; `wraps` answers one of its two
        # questions (keras/src/ops/operation.py, `__new__`).
        begin.__signature__ = inspect.signature(original)  # type: ignore[attr-defined]
        return begin

    kinds = {kind: kind.__init__ for kind in (keras.layers.Layer, BaseOptimizer, keras.metrics.Metric)}
    for kind, constructor in kinds.items():
        kind.__init__ = noting(constructor)
    try:
        yield created
    finally:
        for kind, constructor in kinds.items():
            kind.__init__ = constructor


_numbers: dict[str, int] | None = None


def named_alike(make: Callable[[], Model]) -> Model:
    """Calls `make` while Keras numbers the names that it gives (auc_1) from where it was at the first such call.

    It counts all objects of the process (`uniquify`, keras/src/utils/naming.py): a metric `auc` of the model that is
    trained would be `auc_1` in its copy, and its figure `val_auc_1`. A layer that the first call has created and
    keeps, as by functools.cache, keeps its name too: the others of its kind are numbered from the next.
    Tests: test_copies_of_a_model_have_the_same_names, test_copies_have_the_same_names_beside_layers_that_are_kept.
    """
    global _numbers
    from keras.src.backend.common import global_state

    last = dict(global_state.get_global_attribute("object_name_uids") or {})
    if _numbers is None:
        _numbers = dict(last)
    while True:
        global_state.set_global_attribute("object_name_uids", collections.defaultdict(int, _numbers))
        try:
            return make()
        except ValueError as error:  # of keras/src/models/sequential.py or ops/function.py
            used = re.search(r"""\bname ['"](\w+?)(_\d+)?['"] is """, str(error), re.IGNORECASE)
            if used is None or _numbers.get(used[1], 0) >= last.get(used[1], 0):
                raise
            _numbers[used[1]] = _numbers.get(used[1], 0) + 1


@contextlib.contextmanager
def keeping_random_state() -> Iterator[None]:
    """Afterwards random numbers are drawn as before: those of Python, of NumPy, and of Keras' own generator
    (`global_seed_generator`, keras/src/random/seed_generator.py), a variable which belongs to the strategy in whose
    scope it was created. TensorFlow's eager generator goes on from where the code within leaves it.

    Test: test_a_copy_draws_no_numbers_of_the_program.
    """
    from keras.src.backend.common import global_state
    from keras.src.random.seed_generator import GLOBAL_SEED_GENERATOR

    of_python, of_numpy = random.getstate(), np.random.get_state()
    generator = global_state.get_global_attribute(GLOBAL_SEED_GENERATOR)
    try:
        yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)
        global_state.set_global_attribute(GLOBAL_SEED_GENERATOR, generator)


def draw_by_replica() -> None:
    """Makes each replica draw random numbers of its own from equal seeds (keras/src/backend/tensorflow/random.py).

    The seeds of a layer have the same values on all replicas, which all drew the same masks and the same augmentation.
    One process draws others for each example of the whole batch. The first replica draws as Keras does.
    Test: tests/local/test_untracked.py.
    """
    import keras
    import tensorflow as tf

    def by_replica(draw_seed: Callable[[object], Tensor]) -> Callable[[object], Tensor]:
        @functools.wraps(draw_seed)
        def draw(seed: object) -> Tensor:
            drawn = draw_seed(seed)
            replica = tf.distribute.get_replica_context()
            number = 0 if replica is None else replica.replica_id_in_sync_group
            if isinstance(number, int) and not number:
                return drawn
            return drawn + tf.stack([tf.cast(number, drawn.dtype) * _BETWEEN_REPLICAS, tf.zeros([], drawn.dtype)])

        return draw

    backend = keras.src.backend.tensorflow
    for module in (backend.random, backend.image):
        if not hasattr(module.draw_seed, "__wrapped__"):
            module.draw_seed = by_replica(module.draw_seed)


def replace_losses(model: Model, replacement: Callable[[keras.losses.Loss], keras.losses.Loss]) -> None:
    """Replaces the keras.losses.Loss of each output of a model that is built and compiled, also those made from
    functions (`CompileLoss`, keras/src/trainers/compile_utils.py).

    Test: test_a_loss_that_is_a_sum_stays_as_it_is_for_other_copies_of_the_model.
    """
    compiled = model._compile_loss
    if compiled is not None and compiled._flat_losses:
        compiled._flat_losses = [each._replace(loss=replacement(each.loss)) for each in compiled._flat_losses]


@contextlib.contextmanager
def recording_updates(record: Callable[[Optimizer, list[Variable] | None], None]) -> Iterator[None]:
    """Within, optimizers update nothing and build nothing; each call of `apply` is given to `record`.

    All optimizers are of this class or its subclasses, and `apply_gradients` calls `apply`
    (keras/src/optimizers/base_optimizer.py, loss_scale_optimizer.py).
    Test: tests/unit/training/model/test_step_trace.py.
    """
    import keras

    def apply(self: Optimizer, grads: list[Tensor], trainable_variables: Iterable[Variable] | None = None) -> None:
        record(self, None if trainable_variables is None else list(trainable_variables))

    def subclasses(kind: Optimizer) -> Iterator[Optimizer]:
        for each in kind.__subclasses__():
            yield each
            yield from subclasses(each)

    base = keras.optimizers.Optimizer
    kinds = [base, *{kind for kind in subclasses(base) if "apply" in vars(kind)}]
    originals = [vars(kind).get("apply") for kind in kinds]
    for kind in kinds:
        kind.apply = apply
    try:
        yield
    finally:
        for kind, before in zip(kinds, originals, strict=True):
            if before is None:
                del kind.apply
            else:
                kind.apply = before


def hold(variables: Sequence[Variable], values: Sequence[Tensor]) -> Any:
    """Returns a keras.StatelessScope in which only these variables keep their values to the scope; others change.

    Keras' own also keeps the updates of all others (keras/src/backend/common/stateless_scope.py).
    Test: tests/unit/training/model/test_compiled.py.
    """
    import keras

    held = {id(v) for v in variables}

    class Scope(keras.StatelessScope):  # type: ignore[misc]
        def holds(self, variable: Variable) -> bool:
            return id(variable) in held

        def add_update(self, update: tuple[Variable, Tensor]) -> None:
            variable, value = update
            if self.holds(variable):
                super().add_update(update)
            else:
                variable._direct_assign(value)

        def get_current_value(self, variable: Variable) -> Tensor:
            return super().get_current_value(variable) if self.holds(variable) else variable._value

    return Scope(list(zip(variables, values, strict=True)), collect_losses=True)
