"""Every private part of TensorFlow that trainer reads or calls, to be reviewed at each upgrade.

Each function names the source file, the reason, and the test that fails when an upgrade changes what it relies on.
tensorflow_patches.py has the parts that trainer replaces.

Libraries are imported within functions: a server's process has the C library only (tf_server.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib.util
import re
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from trainer.job.errors import UserError
from trainer.job.messages import how_to_install
from trainer.workloads.types import Dataset, Strategy, Tensor, Variable

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import tensorflow as tf

Internal: TypeAlias = Any
"""An object of TensorFlow's without a public type."""


def replicas_decide_by_themselves() -> bool:
    """Whether a replica's update may be conditional, by the check of Keras' own LossScaleOptimizer
    (`strategy_supports_no_merge_call`, tensorflow/python/distribute/distribute_lib.py).

    Test: test_only_some_strategies_merge_replicas_within_an_update.
    """
    import tensorflow as tf

    return bool(tf.__internal__.distribute.strategy_supports_no_merge_call())


@contextlib.contextmanager
def tables_on_each_worker(strategy: Strategy) -> Iterator[None]:
    """Within, lookup tables are created on each ps-worker, as they are within the strategy's scope, but variables are
    not (`_resource_creator_scope`, tensorflow/python/distribute/parameter_server_strategy_v2.py).

    Otherwise a worker would ask the chief's table for each batch, or for each example of a Dataset.
    Test: tests/unit/training/loops/test_lookup_tables.py.
    """
    with contextlib.ExitStack() as stack:
        for scope in strategy.extended._resource_creator_scope():
            stack.enter_context(scope)
        yield


def converting_as_in_eager_code() -> Internal:
    """A context in which Dataset.map converts a function by AutoGraph also if its caller is not to be converted
    (`tf_convert`, tensorflow/python/autograph/impl/api.py).

    Test: tests/unit/training/loops/test_lookup_tables.py.
    """
    from tensorflow.python.autograph.core import ag_ctx

    return ag_ctx.ControlStatusCtx(ag_ctx.Status.UNSPECIFIED)


def named_variable(name: str, like: Internal) -> Internal:
    """A variable of the device that runs a graph, with the shape and type of another one, to be assigned before it is
    read; in another call it is the same.

    A tf.Variable that is created in a graph is lifted out of it, to the task that traces. Optimizers know a variable by
    its `_unique_id` (keras/src/backend/tensorflow/optimizer.py), which is the other one's.
    Sources: tensorflow/python/ops/resource_variable_ops.py, tensorflow/core/kernels/resource_variable_ops.cc.
    Test: tests/unit/training/loops/ps/test_variable_copies.py.
    """
    import tensorflow as tf
    from tensorflow.python.ops import resource_variable_ops

    handle = tf.raw_ops.VarHandleOp(dtype=like.dtype, shape=like.shape, shared_name=name)
    return resource_variable_ops.BaseResourceVariable(
        trainable=like.trainable, shape=like.shape, dtype=like.dtype, handle=handle, name=name, handle_name=name,
        unique_id=like._unique_id, in_graph_mode=True,
    )  # fmt: skip


def is_deterministic() -> bool:
    """Whether operations must be deterministic (tensorflow/python/framework/config.py), for which there is no public
    question.

    Test: test_the_loop_trains_where_operations_are_deterministic.
    """
    from tensorflow.python.framework import config

    return bool(config.is_op_determinism_enabled())


def read_variables(graph: Internal) -> list[tf.Variable]:
    """The variables whose values a function has read so far, while it is traced (`watch_variable`,
    tensorflow/python/framework/func_graph.py). FuncGraph.variables has them afterwards.

    Test: tests/unit/training/weights/test_untracked.py.
    """
    return list(graph._watched_variables)


def only_read(graph: Internal) -> set[int]:
    """The ids of what a function captures and does not change (tensorflow/python/framework/auto_control_deps_utils.py).

    Test: tests/unit/training/weights/test_untracked.py.
    """
    from tensorflow.python.framework.auto_control_deps_utils import get_read_only_resource_input_indices_graph

    inputs = {id(graph.inputs[i]) for i in get_read_only_resource_input_indices_graph(graph)}
    return {id(outer) for outer, inner in graph.captures if id(inner) in inputs}


def read_by_functions_of(dataset: Dataset) -> set[int]:
    """The ids of the handles of variables that functions of a Dataset, as of `map`, read and do not change
    (`_functions` and `_inputs`, tensorflow/python/data/ops/dataset_ops.py).

    Test: tests/unit/training/weights/test_untracked.py.
    """
    read = set[int]().union(*(only_read(each.function.graph) for each in dataset._functions()))
    return read.union(*map(read_by_functions_of, dataset._inputs()))


def is_summed_when_read(variable: Variable) -> bool:
    """Whether to read a variable is a collective: one with tf.VariableSynchronization.ON_READ
    (`SyncOnReadVariable._get_cross_replica`, tensorflow/python/distribute/values.py).

    Test: tests/unit/training/weights/test_agreement.py.
    """
    import tensorflow as tf
    from tensorflow.python.distribute.values import SyncOnReadVariable

    first = tf.VariableAggregation.ONLY_FIRST_REPLICA
    return isinstance(variable, SyncOnReadVariable) and variable.aggregation != first


def components(variable: Variable) -> list[tf.Variable]:
    """The variables of a distributed one (tensorflow/python/distribute/values.py, ps_values.py), or itself."""
    # vars(), because a distributed one passes other attributes on to what it reads, which may be a collective.
    variable = vars(variable).get("_value", variable)  # of Keras
    if hasattr(type(variable), "values"):
        return list(variable.values)
    return [vars(variable).get("_v", variable)]


def without_order(tensor: Tensor) -> Tensor:
    """A tensor whose operation has side effects, but for which no other waits, and which waits for none but its inputs.

    In a function TensorFlow runs operations with side effects, such as tf.timestamp and tf.numpy_function, in the order
    in which they were added, unless the manager of that order is told otherwise (`AutomaticControlDependencies`,
    tensorflow/python/framework/auto_control_deps.py).
    Test: test_no_operation_waits_for_a_clock_and_a_clock_only_for_its_own.
    """
    if (manager := tensor.graph.experimental_acd_manager) is not None:
        manager.run_independently(tensor.op)
    return tensor


def names_in_graph(serialized: bytes) -> dict[str, str]:
    """The names of a SavedModel's variables by their keys (tensorflow/core/protobuf/trackable_object_graph.proto).

    Test: tests/unit/training/weights/test_init_from.py.
    """
    from tensorflow.core.protobuf import trackable_object_graph_pb2

    graph = trackable_object_graph_pb2.TrackableObjectGraph.FromString(serialized)
    return {each.checkpoint_key: each.full_name for node in graph.nodes for each in node.attributes if each.full_name}


def c_libraries() -> tuple[ctypes.CDLL, ctypes.CDLL]:
    """TensorFlow's C API (tensorflow/c/c_api.h), which is in two libraries of the wheel; the first has TF_Status.

    Test: tests/unit/training/loops/test_tf_server.py.

    Raises:
        UserError: TensorFlow is not installed.
    """
    package = _package_folder()
    suffix = "2.dylib" if sys.platform == "darwin" else "so.2"
    framework = ctypes.CDLL(str(package / f"libtensorflow_framework.{suffix}"), ctypes.RTLD_GLOBAL)
    framework.TF_NewStatus.restype = ctypes.c_void_p
    framework.TF_GetCode.argtypes = [ctypes.c_void_p]
    framework.TF_Message.argtypes, framework.TF_Message.restype = [ctypes.c_void_p], ctypes.c_char_p
    return framework, ctypes.CDLL(str(package / f"libtensorflow_cc.{suffix}"), ctypes.RTLD_GLOBAL)


def new_server_definition(**fields: object) -> Internal:
    """A ServerDef (tensorflow/core/protobuf/tensorflow_server.proto), without an import of tensorflow/__init__.py.

    A bare module with TensorFlow's path suffices to import its protocol buffers, in 0.4 s instead of 4.
    Test: tests/unit/training/loops/test_tf_server.py.
    """
    if "tensorflow" not in sys.modules:
        folder = _package_folder()
        sys.modules["tensorflow"] = bare = types.ModuleType("tensorflow")
        bare.__path__ = [str(folder)]
    from tensorflow.core.protobuf import tensorflow_server_pb2

    return tensorflow_server_pb2.ServerDef(**fields)


@functools.cache
def _package_folder() -> Path:
    package = importlib.util.find_spec("tensorflow")
    if package is None or not package.submodule_search_locations:
        raise UserError(f"tensorflow: is not installed; {how_to_install('cpu')}")
    return Path(next(iter(package.submodule_search_locations)))


def constant_value(tensor: Tensor) -> npt.NDArray[np.generic] | None:
    """The value of a graph's tensor that depends on constants alone; None of others, and where there is no graph.

    A constant of more than 128 values is an input of its graph (`FuncGraph.captures`,
    tensorflow/python/framework/func_graph.py). What depends on other inputs, or on operations with a state, such as
    that of a variable or of random numbers, has no such value. tf.get_static_value does not know tf.where or
    tf.reshape, so a copy of the operations is run.
    Test: test_what_depends_on_constants_alone_has_a_value.
    """
    import tensorflow as tf

    if not tf.is_symbolic_tensor(tensor):
        return None
    nodes, inputs, pending = dict[str, Internal](), dict[str, Tensor](), [tensor.op]
    while pending:
        op = pending.pop()
        if op.name in nodes or op.name in inputs:
            continue
        if op.type == "Placeholder":
            outer = next((outer for outer, inner in op.graph.captures if inner.op.name == op.name), None)
            value = constant_value(outer) if outer is None or tf.is_symbolic_tensor(outer) else outer
            if value is None or value.dtype == tf.resource:
                return None
            inputs[op.name] = value
            continue
        if op.op_def.is_stateful or any(each.HasField("func") for each in op.node_def.attr.values()):
            return None
        nodes[op.name] = node = op.node_def
        node.attr.pop("_class", None)  # colocation with an operation that is not copied
        pending += [tensor_in.op for tensor_in in op.inputs]

    @tf.function(autograph=False)
    def copied() -> Tensor:
        graph = tf.compat.v1.GraphDef(node=nodes.values())
        tensors = {f"{name}:0": tf.convert_to_tensor(value) for name, value in inputs.items()}
        return tf.graph_util.import_graph_def(graph, tensors, [tensor.name], name="")[0]

    with tf.init_scope():
        constant: npt.NDArray[np.generic] = copied.get_concrete_function()().numpy()
    return constant


_UNBATCHING = ("Unbatch", "FlatMap", "Interleave", "Window")
"""In the names of Datasets whose elements are not those of their inputs, one by one."""


def was_batched(dataset: Dataset) -> bool:
    """Whether elements of a Dataset are batches that `batch` or `padded_batch` has made, perhaps mapped or filtered.

    Test: test_a_dataset_of_batches_is_refused_for_a_model_without_input.
    """
    kind = type(dataset).__name__
    if any(name in kind for name in _UNBATCHING):
        return False
    return "Batch" in kind or any(map(was_batched, dataset._inputs()))


def as_written(text: str) -> str:
    """A text with the lines of the user's own files in place of those of AutoGraph's translations, as in a traceback
    that an operation quotes (`_PythonFnFactory`, tensorflow/python/autograph/pyct/transpiler.py).

    Test: test_an_error_in_a_function_that_autograph_has_translated_is_reported_with_its_own_line.
    """
    if "__autograph_generated_file" not in text:
        return text
    from tensorflow.python.autograph.impl import api

    kept = api._TRANSPILER._cache._cache.values()
    maps = [factory.source_map for found in list(kept) for factory in list(found.values())]
    origins = {(at.filename, at.lineno): origin.loc for each in maps for at, origin in each.items()}

    def own(found: re.Match[str]) -> str:
        origin = origins.get((found[1], int(found[2])))
        return f'File "{origin.filename}", line {origin.lineno}' if origin else found[0]

    return re.sub(r'File "([^"]*__autograph_generated_file[^"]*)", line (\d+)', own, text)
