"""The variables that a step or its data use and that neither the model nor an optimizer or a metric has.

Such as a tf.Variable at the top of the file, one that is an attribute of a layer, the state of a tf.random.Generator,
and that of Keras' own generator, from which layers without a seed draw. The trace of a step shows them. They are
adopted: equal on all tasks, in checkpoints, restored, and given to copies of the model (decision 84).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain

import tensorflow as tf

from trainer.job.errors import UserError
from trainer.model_dir import checkpoint
from trainer.model_dir.checkpoint_meta import UNTRACKED
from trainer.protocol import events
from trainer.training.model.state import TrainState, as_array
from trainer.training.private.tensorflow_private import (
    Internal,
    components,
    is_summed_when_read,
    only_read,
    read_by_functions_of,
    read_variables,
)  # fmt: skip
from trainer.training.runtime import created_variables
from trainer.training.task import TrainingTask
from trainer.workloads.types import Variable

_USE = 24
"""The number of these values for `from_chief`."""
OF_FILE = f"{UNTRACKED}file."
"""Begins the names of those that were created when the workload was imported."""
_RULE = "create it in model(), as by self.add_weight(), or at the top of the file"
_WRITES = re.compile(r"LookupTable(Insert|Remove|Import)V2|(Priority)?Queue(Enqueue|Dequeue)(Many|UpTo)?V2")
"""Operations that change what no checkpoint can have (tensorflow/core/ops/lookup_ops.cc, data_flow_ops.cc)."""


def candidates(job: TrainingTask, state: TrainState) -> dict[str, Variable]:
    """What the workload has created and nobody has, by the names in a checkpoint. Which of it a step uses is known once
    one is traced."""
    of_model = created_variables.of(state.model)
    parts = {"file": job.created.alive(), "model": of_model, "optimizer": state.created.alive()}
    named = {f"{UNTRACKED}{part}.{i:03d}": v for part, group in parts.items() for i, v in enumerate(group)}
    owned = _handles(*state.owned)
    return {name: v for name, v in named.items() if v is not None and not _handles(v) & owned}


def usable(variable: Variable) -> bool:
    """Whether a checkpoint can have it."""
    return _is_of_numbers(variable) and not is_summed_when_read(variable)


def _is_of_numbers(variable: Variable) -> bool:
    """Whether it has numbers, and always the same shape."""
    dtype = variable.dtype
    return bool(variable.shape.is_fully_defined() and (dtype.is_floating or dtype.is_integer or dtype.is_bool))


def adopt(job: TrainingTask, state: TrainState, graph: Internal) -> None:
    """Makes what a step uses part of the state, while the step is traced, with the chief's values on all tasks.

    Raises:
        UserError: a variable cannot be adopted.
    """
    state.untracked = used_by(job, state, graph) | read_by_data(job, state)
    for name, v in state.untracked.items():
        if state.restored is not None and name not in state.restored:
            text = f"the checkpoint has no value of {v.name}, which a step uses; it begins as the code makes it"
            job.send(events.Line(f"warning: {text}"))
    if state.untracked and len(job.task.members()) > 1:
        with tf.init_scope():
            values = {name: as_array(tf.convert_to_tensor(v)) for name, v in state.untracked.items()}
            for name, value in job.from_chief(values, _USE).items():
                assign_here(state.untracked[name], value)


def assign_here(variable: Variable, value: checkpoint.Array) -> None:
    """Assigns to this task's variables, which is no collective as an assignment to a distributed variable may be."""
    for each in components(variable):
        each.assign(value)


def give_file(job: TrainingTask, values: checkpoint.Values) -> None:
    """Gives what is at the top of the file the values of a checkpoint, in a task that trains nothing."""
    for i, variable in enumerate(job.created.alive()):
        if variable is not None and (name := f"{OF_FILE}{i:03d}") in values:
            assign_here(variable, values[name])


def used_by(job: TrainingTask, state: TrainState, graph: Internal) -> dict[str, Variable]:
    """Returns the variables that a step uses and nobody has, while the step is traced.

    Raises:
        UserError: one cannot be adopted, or the step changes a table or queue.
    """
    captured = {id(outer) for outer, _ in graph.captures}
    used = {name: v for name, v in candidates(job, state).items() if _handles(v) & captured}
    known = _handles(*state.owned, *used.values())
    for variable in read_variables(graph):
        if not variable.name.startswith(created_variables.OWN) and not _handles(variable) & known:
            raise UserError(
                f"workload: {job.workload.name}: a step uses the variable {variable.name}, which was created neither "
                f"in model() nor at the top of the file, so no checkpoint would have it; {_RULE}"
            )
    for variable in used.values():
        _require_adoptable(job, variable)
    if any(outer.dtype == tf.resource and id(outer) not in known for outer, _ in graph.captures):
        _require_no_tables(job, graph)
    _require_no_race(job, used, captured - only_read(graph))
    return used


def _require_no_tables(job: TrainingTask, graph: Internal) -> None:
    """
    Raises:
        UserError: the step changes a table or queue.
    """
    definition = graph.as_graph_def()
    for node in chain(definition.node, *(each.node_def for each in definition.library.function)):
        if _WRITES.fullmatch(node.op):
            raise UserError(
                f"workload: {job.workload.name}: a step changes a table or queue ({node.op}), which is another on "
                "each task and in no checkpoint; keep what it holds in variables, as by self.add_weight()"
            )


def _require_no_race(job: TrainingTask, used: Mapping[str, Variable], changed: set[int]) -> None:
    """Checks that replicas of this task do not change one variable, as the file is imported outside their strategy."""
    for name, variable in used.items() if job.local_replicas > 1 else ():
        if name.startswith(OF_FILE) and len(components(variable)) == 1 and _handles(variable) & changed:
            raise UserError(
                f"workload: {job.workload.name}: a step changes the variable {variable.name}, not of model(), so "
                f"that {job.local_replicas} replicas would change the same one; create it in model()"
            )


def read_by_data(job: TrainingTask, state: TrainState) -> dict[str, Variable]:
    """Returns the variables that functions of the training data read, as of Dataset.map, and that callbacks may change.

    What these functions change themselves is not meant, as the state of a generator: a resumed run reads the data again
    from their beginning.
    """
    if job.workload.callbacks is None:
        return {}
    with tf.init_scope():
        read = read_by_functions_of(job.training.batches(job.part))
    return {name: v for name, v in candidates(job, state).items() if usable(v) and _handles(v) & read}


def _require_adoptable(job: TrainingTask, variable: Variable) -> None:
    what = f"workload: {job.workload.name}: a step uses the variable {variable.name}"
    if job.spec.traits.coordinated and not all("/job:ps" in each.device for each in components(variable)):
        raise UserError(
            f"{what}, which only the chief has, and workers of parameter_server cannot; create it in model()"
        )
    if is_summed_when_read(variable):
        raise UserError(
            f"{what}, which TensorFlow adds up over tasks whenever it is read (ON_READ): leave `synchronization` "
            "out, or give it aggregation=tf.VariableAggregation.ONLY_FIRST_REPLICA"
        )
    if not _is_of_numbers(variable):
        kind = f"{variable.dtype.name} {variable.shape}"
        raise UserError(f"{what}, of {kind}, which no checkpoint can have: only numbers of a fixed shape")


def _handles(*variables: Variable) -> set[int]:
    """What a graph captures of variables."""
    return {id(each.handle) for variable in variables for each in components(variable)}
