"""Every part of TensorFlow that trainer replaces, to be reviewed at each upgrade; tensorflow_private.py has those that
it reads or calls.

Each function names the source file, the reason, and the test that fails when an upgrade changes what it relies on.
TensorFlow is 2.21. One private attribute is used elsewhere, in a lower layer: AutoGraph's notes on an exception
(`ag_error_metadata`, workloads/locate.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import linecache
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path

from trainer.training.private.tensorflow_private import Internal, c_libraries
from trainer.workloads.types import Strategy, Tensor, Variable

_ALONE = threading.local()
"""Replicas of one task are traced in threads, which take turns (tensorflow/python/distribute/mirrored_run.py)."""


@contextlib.contextmanager
def as_one_replica() -> Iterator[None]:
    """Within, `num_replicas_in_sync` of a strategy is 1 to the code of this thread.

    By this number Keras divides some losses: those of Loss objects and of layers, not those of functions that return
    one number, nor those of a `compute_loss` or `train_step` of the user's own (keras/src/losses/loss.py). If it is 1
    all of them are those of a replica's batch, and the gradients can be averaged.
    The property is tf.distribute.StrategyBase's (tensorflow/python/distribute/distribute_lib.py); nothing in
    TensorFlow's own sums of gradients reads it.
    Test: test_a_train_step_sees_one_replica_and_the_rest_sees_all.
    """
    import tensorflow as tf

    strategy = tf.distribute.Strategy
    if "num_replicas_in_sync" not in vars(strategy):
        original = strategy.num_replicas_in_sync
        strategy.num_replicas_in_sync = property(
            lambda self: 1 if getattr(_ALONE, "depth", 0) else original.fget(self), doc=original.__doc__
        )
    _ALONE.depth = getattr(_ALONE, "depth", 0) + 1
    try:
        yield
    finally:
        _ALONE.depth -= 1


_BETWEEN_REPLICAS = 1 << 24
"""From the seed of a replica to that of the next, more than the steps of most jobs."""
_LARGEST_SEED = 2**31 - 1


def draw_by_replica(step: int, *, seeded: bool = True) -> None:
    """Makes operations of tf.random draw other numbers on each replica in a step, and other ones after each restart.

    Without this, tasks draw the same numbers, because the seeds are part of the graph. So do the replicas of one task
    where the code gives a seed, and all ps-workers, which run one graph. A resumed job draws the numbers of its start
    again, because no checkpoint has the state of these operations (`get_seed`,
    tensorflow/python/framework/random_seed.py). The first replica of a new job draws as in one process.
    Test: test_each_replica_draws_its_own_numbers_by_tf_random.

    Args:
        step: the one from which training continues.
        seeded: False where replicas run one graph: each operation then gets a seed by chance, on each of them.
    """
    import tensorflow as tf
    from tensorflow.python.framework import random_seed

    original = getattr(random_seed.get_seed, "__wrapped__", random_seed.get_seed)

    @functools.wraps(original)
    def get_seed(op_seed: int | None) -> tuple[int | None, int | None]:
        of_graph, of_operation = original(op_seed)
        replica = tf.distribute.get_replica_context() if tf.distribute.has_strategy() else None
        if replica is None or of_graph is None:
            return of_graph, of_operation
        if not seeded:
            return None, None
        number = tf.get_static_value(replica.replica_id_in_sync_group) or 0
        change = step + int(number) * _BETWEEN_REPLICAS
        return (of_graph + change) % _LARGEST_SEED or _LARGEST_SEED if change else of_graph, of_operation

    random_seed.get_seed = get_seed


_made_by_the_job = threading.local()
"""Whether this thread makes the job's strategy."""


def refuse_strategies(of_job: str) -> None:
    """Makes the constructors of all strategies raise an error, but within `making_the_strategy`.

    Beside the job's own another one cannot be used, and MultiWorkerMirroredStrategy or MirroredStrategy may end the
    process by a signal. The constructors of subclasses do their work before they call that of the base class,
    `StrategyBase` (tensorflow/python/distribute/distribute_lib.py), so it is its `__new__`, which all have. TensorFlow
    makes its default strategy itself, whose class is private.
    Test: test_a_second_strategy_is_refused.

    Args:
        of_job: the name of the job's strategy.
    """
    from tensorflow.python.distribute import distribute_lib

    def new(kind: type[Strategy], *_: object, **__: object) -> Strategy:
        if not getattr(_made_by_the_job, "yes", False) and not kind.__name__.startswith("_"):
            # Names by which they are exported (tensorflow/python/util/tf_export.py).
            public = [f"tf.{name}" for name in vars(kind).get("_tf_api_names", ())]
            raise RuntimeError(
                f"{min(public, key=len, default=kind.__name__)}: the job makes its strategy, {of_job}, and "
                "calls model() in its scope; leave this strategy and its scope() out, or set `strategy` in the spec"
            )
        return object.__new__(kind)

    distribute_lib.StrategyBase.__new__ = staticmethod(new)


@contextlib.contextmanager
def making_the_strategy() -> Iterator[None]:
    """Within, this thread makes the job's strategy; see `refuse_strategies`."""
    _made_by_the_job.yes = True
    try:
        yield
    finally:
        _made_by_the_job.yes = False


def create_variables_alone(strategy: Strategy) -> None:
    """Makes a MultiWorkerMirroredStrategy create variables without the other tasks, which get the chief's values later
    (weights/restore.py).

    Its own sends each initial value to all tasks (`_get_variable_creator_initial_value`,
    tensorflow/python/distribute/collective_all_reduce_strategy.py): a task that creates other variables than the chief
    waits without end, or gets another variable's value, and there is no such message for bfloat16, int8 and others.
    Those of the first replica on a task go to its others as in MirroredStrategy, the base class.
    Test: tests/unit/training/weights/test_agreement.py.
    """
    from tensorflow.python.distribute.mirrored_strategy import MirroredExtended

    extended = strategy.extended
    of_one_task = MirroredExtended._get_variable_creator_initial_value
    extended._get_variable_creator_initial_value = types.MethodType(of_one_task, extended)


@contextlib.contextmanager
def updating_together() -> Iterator[None]:
    """Within, an optimizer may be called for all replicas at once, outside of each one's context.

    It merges replicas by `maybe_merge_call` (keras/src/backend/tensorflow/optimizer.py), which asks for a replica's
    context, also within the conditions of gradient accumulation and of an average of the weights, where there can be
    none.
    Test: test_two_replicas_train_as_one_with_the_whole_batch.
    """
    import tensorflow as tf

    interim = tf.__internal__.distribute.interim
    original = interim.maybe_merge_call

    def call(function: Callable[..., Tensor], strategy: Strategy, *args: Tensor, **more: Tensor) -> Tensor:
        return function(strategy, *args, **more)

    interim.maybe_merge_call = call
    try:
        yield
    finally:
        interim.maybe_merge_call = original


def use_cpu_devices(count: int) -> None:
    """Makes MultiWorkerMirroredStrategy use this many logical CPUs of a task.

    It uses all GPUs but only the first CPU, and no public option changes that
    (`CollectiveAllReduceExtended._initialize_local_devices`,
    tensorflow/python/distribute/collective_all_reduce_strategy.py).
    Test: test_multi_worker_mirrored_has_a_replica_per_cpu_device_and_uses_the_communication_of_the_spec.
    """
    from tensorflow.python.distribute import collective_all_reduce_strategy

    def local_devices(_: Internal, __: Internal, worker_device: str) -> tuple[tuple[str, ...], str]:
        return tuple(f"{worker_device}/device:CPU:{i}" for i in range(count)), "CPU"

    collective_all_reduce_strategy.CollectiveAllReduceExtended._initialize_local_devices = local_devices


def capture_at_the_top() -> None:
    """Makes a graph within a graph take a value of each ps-worker, such as its lookup table, from the outer graph.

    `FuncGraph.capture_call_time_value` (tensorflow/python/framework/func_graph.py) creates a placeholder that is fed
    only in the graph that the coordinator calls, not in the branches and bodies within it: "You must feed a value for
    placeholder tensor ... with dtype resource".
    Test: tests/unit/training/loops/test_lookup_tables.py.
    """
    from tensorflow.python.framework import func_graph

    graphs = func_graph.FuncGraph
    plain = graphs.capture_call_time_value

    def capture(
        self: Internal,
        closure: Internal,
        spec: Internal,
        key: Internal = None,
        default_value: Internal = None,
        placeholder: Internal = None,
    ) -> Internal:
        if placeholder is not None or not isinstance(self.outer_graph, graphs):
            return plain(self, closure, spec, key, default_value, placeholder)
        with self.outer_graph.as_default():
            outer = self.outer_graph.capture_call_time_value(closure, spec, key, default_value)
        return func_graph.nest.map_structure(self.capture, outer, expand_composites=True)

    graphs.capture_call_time_value = capture


def keep_no_converted_source() -> None:
    """Makes AutoGraph remove each file of converted source once it is loaded.

    AutoGraph writes one for each function that it converts, and removes it when the interpreter exits
    (`load_source`, tensorflow/python/autograph/pyct/loader.py): those of a killed process pile up in /tmp, with the
    bytecode that Python writes beside them. Tracebacks take the source from linecache.
    Test: test_converted_source_is_in_no_file_and_still_in_tracebacks.
    """
    from tensorflow.python.autograph.pyct import loader

    original = loader.load_source

    def load_source(source: str, delete_on_exit: bool) -> tuple[types.ModuleType, str]:
        writes_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
        try:
            module, file = original(source, delete_on_exit)
        finally:
            sys.dont_write_bytecode = writes_none
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        Path(file).unlink(missing_ok=True)
        return module, file

    loader.load_source = load_source


def start_collectives_without_the_gil() -> None:
    """Replaces the binding of TFE_EnableCollectiveOps, which starts the server and waits for the peers.

    TensorFlow's own holds the GIL meanwhile (tensorflow/python/tfe_wrapper.cc), so no thread could close the port to
    other machines (loopback.py). Its caller is tensorflow/python/eager/context.py.
    Tests: test_the_caller_looks_the_binding_up_by_its_name; tests/local/test_loopback.py.
    """
    from tensorflow.python import pywrap_tfe

    pywrap_tfe.TFE_EnableCollectiveOps = _enable_collectives


def _enable_collectives(context: Internal, definition: bytes) -> None:
    import tensorflow as tf

    framework, library = c_libraries()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.argtypes, pointer.restype = [ctypes.py_object, ctypes.c_char_p], ctypes.c_void_p
    enable = library.TFE_EnableCollectiveOps
    enable.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p]
    enable.restype = None
    status = framework.TF_NewStatus()
    enable(pointer(context, None), definition, len(definition), status)
    if code := framework.TF_GetCode(status):
        message = framework.TF_Message(status).decode(errors="replace")
        raise tf.compat.v1.errors.exception_type_from_error_code(code)(None, None, message)


def place_by_bytes(strategy: Strategy) -> None:
    """Makes a ParameterServerStrategy create each variable on the ps that has the fewest bytes of those so far.

    It creates them on one after the other (`_create_variable_round_robin`,
    tensorflow/python/distribute/parameter_server_strategy_v2.py): with two ps and layers of a kernel and a bias, all
    kernels on the first. What an optimizer keeps for a variable is beside it in either case.
    Test: test_variables_are_spread_over_the_ps_by_bytes.
    """
    extended = strategy.extended
    original, loads = extended._create_variable_round_robin, [0] * extended._num_ps

    def create(next_creator: Callable[..., Variable], **kwargs: object) -> Variable:
        least = loads.index(min(loads))
        extended._variable_count = least  # modulo the number of ps, it is where the variable is created
        variable = original(next_creator, **kwargs)
        loads[least] += variable.shape.num_elements() * variable.dtype.size
        return variable

    extended._create_variable_round_robin = create


def keep_functions() -> None:
    """Makes graphs that Python no longer needs stay on the tasks until the process ends.

    TensorFlow removes each from all workers, and waits for their answers with the GIL held (TFE_ContextRemoveFunction,
    tensorflow/python/tfe_wrapper.cc; `MaybeRemoveFunctionRemotely`, tensorflow/core/common_runtime/eager/context.cc).
    A silent worker would stop all threads of the chief, also the one that would cut its connections.
    Test: test_the_others_go_on_and_end_without_it.
    """
    from tensorflow.python.eager import context

    context.Context.remove_function = lambda *_: None
