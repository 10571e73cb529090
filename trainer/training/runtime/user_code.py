"""Reports errors of the user's code with the call and its arguments, also if Keras or TensorFlow raised them."""

from __future__ import annotations

import contextlib
import re
import traceback
from collections.abc import Iterator
from pathlib import Path

import tensorflow as tf

from trainer.job.errors import TrainerError, UserError
from trainer.training.private.tensorflow_private import as_written
from trainer.training.runtime import created_variables
from trainer.workloads.locate import original, own_files, python_error, where_it_failed
from trainer.workloads.types import PerExample, Tensor
from trainer.workloads.workload import SHARD

LOST_PEER_FOR_CERTAIN = (tf.errors.UnavailableError, tf.errors.AbortedError)
LOST_PEER = (
    *LOST_PEER_FOR_CERTAIN, tf.errors.CancelledError, tf.errors.DeadlineExceededError, tf.errors.InternalError,
    tf.errors.FailedPreconditionError, tf.errors.UnknownError,
)  # fmt: skip
"""Errors that a call may raise because another task is lost. A graph's own errors have some of these codes too."""
_RESTARTED = "some remote workers have been restarted"
"""The text of another error of such calls: a variable's handle is of a task that has left meanwhile."""
_RUNTIME = Path(__file__).parent
_FRAME = re.compile(r'^ *File "(.+)", line (\d+), in .*\n?', re.MULTILINE)
_NOISE = re.compile(
    r"\x1b\[\d+m|Graph execution error:|Detected at node .* defined at \(most recent call last\):"
    r"|\[\[(?:\{\{node .*?\}\}|\S+)\]\]|\[Op:\S+\]|^<stack[_ ]traces unavailable>$"
    r"|(?s: used by \{\{node \S+\}\} with these attrs: .*)"
    r"|^Exception encountered when calling .*$|(?s:\n\s*Arguments received by \S+:\n.*)",
    re.MULTILINE,
)
_FIRST_ROOT = re.compile(r"\d+ root error\(s\) found\.\s+\(0\) [A-Z_]+:(.*?)(?:\n +\(1\) |\Z)", re.DOTALL)
"""The first of several errors in a graph, as a ps-worker often reports them (platform/status.cc)."""
_REFUSED = re.compile(r"assertion failed: \[(workload: [^\n]*)\] \[(\d+)\] \[([^\n]*?)\]")
"""What an operation of trainer's own finds wrong in the data (inputs/datasets.py)."""
_LONGEST = 300
"""Characters of an error."""
LOSS_WEIGHTS = "compile takes loss_weights as its third argument: write metrics=[...]"
_HINTS = [
    (r"Received a label value of (-\d+) which is outside the valid range of \[0, (\d+)\)",
     "labels must be at least 0, and below {1}, since the last layer has {1} units: add to them in data()"),
    (r"Received a label value of (\d+) which is outside the valid range of \[0, (\d+)\)",
     "the last layer has {1} units, so labels must be below {1}: give it more units, or other labels"),
    (r"rank \(ndim\) `target\.ndim - 1`\. Received: target\.shape=(\(.*?\)), output\.shape=\1",
     "y seems to be one-hot: give class numbers in data(), y.argmax(-1), or compile categorical_crossentropy"),
    (r"same rank \(ndim\)\. Received: target\.shape=\((?:None|\d+),\), output\.shape=\((?:None|\d+), (?!1\))\d+\)",
     "y seems to hold class numbers: compile sparse_categorical_crossentropy, or give one-hot labels in data(), "
     "keras.utils.to_categorical(y)"),
    (r"same shape\. Received: target\.shape=\(.*, (\d+)\), output\.shape=\(.*, (\d+)\)",
     "y has {0} values in its last dimension, and the last layer {1} units: give both the same number"),
    (r"Cast string to \w+ is not supported|dtype='string' is not a valid dtype",
     "text must become numbers, in data() or by a layer such as StringLookup"),
    (r"Using a symbolic `tf.Tensor` as a Python `bool` is not allowed",
     "a graph is being built, in which tensors have no values: write tf.cond for if, and call adapt() on a layer at "
     "the top of the file or in model(), not in data()"),
    (r"Expected `loss_weights` argument to be a float", LOSS_WEIGHTS),
    (r"None values not supported|'NoneType' object has no attribute '(?:shape|dtype)'",
     "the data may be x alone: give (x, y), or compile a model whose train_step needs no y"),
    (r"The structure of `inputs` doesn't match the expected structure",
     "x must have the structure of the model's inputs, and y stands beside it: of a Dataset of dicts, "
     "dataset.map(lambda each: (each['x'], each['y']))"),
    (r"\bShard\(split=|\b(?:data|validation)\(\) (?:takes|missing) ", SHARD),
    (r"Must not nest tf\.distribute\.Strategy scopes",
     "the job calls model() in the scope of its own strategy: remove `with strategy.scope()` from the file, also for "
     "the strategy that tf.distribute.get_strategy() gives"),
    (r"Cannot batch tensors with different shapes|Cannot add tensor to the batch",
     "examples of one batch must have one shape: pad or cut them, in parse() or data(), to one length by tf.pad, or "
     "return trainer.batched(dataset.padded_batch(...))"),
    (r"as_list\(\) is not defined on an unknown TensorShape|shape with unknown rank",
     "TensorFlow does not know the shape of an example, as of numpy_function, py_function and a generator: call "
     "x.set_shape(...), and y.set_shape(...), in the function of Dataset.map"),
    (r"'SymbolicTensor' object has no attribute 'handle'|supports singleton tf\.Variables created on the first call",
     "a layer creates its variables within a step, where it cannot: call it once in model(), on zeros of an example's "
     "shape behind a first dimension of 1"),
    (r"Creating variables in `dataset_fn` is not allowed",
     "create layers that augment, and generators, at the top of the file and call them in data(), or have such layers "
     "in model(), or use tf.image"),
    (r"No OpKernel was registered to support Op '(?:EagerPyFunc|PyFunc|PyFuncStateless)'",
     "py_function runs Python, which the workers of parameter_server do not in a step: write it with TensorFlow "
     "operations, or use multi_worker_mirrored"),
    (r"cache lockfile already exists \('(.*)_\d+\.lockfile'\)",
     "Dataset.cache(file) is for one process that is never killed: delete {0}*, and give each task a file of its own, "
     "as cache(tf.strings.format('..-{{}}-of-{{}}', (shard.index, shard.count))), or use cache() in memory, which "
     "every restart survives"),
    (r"End of sequence",
     "data('train') gives this task no examples: give each task some, at least one for each part of shard.count"),
    (r"No DNN in stream executor|No blas support for stream|CUDA_ERROR_OUT_OF_MEMORY",
     "the GPU has no memory left, because another task or program uses it: give each its own, or set the variable "
     "TF_FORCE_GPU_ALLOW_GROWTH=true, with which each takes what it needs"),
    (r"OOM when allocating|failed to allocate memory", "the device has too little memory: lower train.batch_size"),
]  # fmt: skip


def may_be_a_lost_peers(error: BaseException) -> bool:
    """Whether a call may have raised this because another task is lost."""
    left = isinstance(error, tf.errors.InvalidArgumentError) and _RESTARTED in str(error)
    return left or isinstance(error, LOST_PEER)


@contextlib.contextmanager
def calling(workload: str, what: str, **given: object) -> Iterator[None]:
    """Converts exceptions to a UserError: with file and line if a frame is the user's, else with the call, and with the
    shapes of its arguments. Errors caused by a lost peer or a file system pass unchanged.

    Raises:
        UserError: in place of any other error.
        TrainerError: Exit.BUG, if a callback of trainer's own failed.
    """
    try:
        yield
    except (TrainerError, OSError):
        raise
    except Exception as error:
        if may_be_a_lost_peers(error):
            raise
        if _is_ours(error, workload):
            raise TrainerError(f"unexpected {type(error).__name__}: {essence(str(error))}") from error
        place = python_error(as_written(str(error)), workload) or where_it_failed(error, workload)
        text = place or f"workload: {workload}: {what}: {type(error).__name__}: {essence(str(original(error)))}"
        shapes = ", ".join(f"{name}: {_described(value)}" for name, value in given.items())
        raise UserError("; ".join(filter(None, (text, shapes, hint(str(error), **given))))) from error


def _is_ours(error: Exception, workload: str) -> bool:
    """Whether it was raised in a function of trainer that a library called, such as a callback of the job. Other
    functions of trainer may have been called with wrong arguments, by the user's code or within `calling`."""
    # Creators of variables only pass calls on.
    files = [f.filename for f in traceback.extract_tb(error.__traceback__) if f.filename != created_variables.__file__]
    callers = [file for file in files if not Path(file).is_relative_to(_RUNTIME)]
    return bool(callers) and files[-1] != callers[-1] and callers[-1] not in own_files(workload)


def called(workload: str, what: str, function: PerExample) -> PerExample:
    """A function of (y, prediction) whose errors `calling` reports."""

    def guarded(y: Tensor, prediction: Tensor) -> Tensor:
        with calling(workload, f"{what}(y, prediction)", y=y, prediction=prediction):
            result = function(y, prediction)
            if result is None:
                raise TypeError("it gives None; return one value per example")
            return result

    return guarded


def graph_error(error: BaseException, workload: str) -> str | None:
    """An error of a graph operation of the user's model, loss or data in one line; None for other errors.

    The error names where the operation was created: the innermost of the user's lines is reported.
    """
    if not isinstance(error, tf.errors.OpError) or may_be_a_lost_peers(error):
        return None
    if refused := _REFUSED.search(str(error)):
        return " ".join(refused.groups()).replace("\\'", "'")  # TensorFlow quotes what it prints
    lines = [line for file, line in _FRAME.findall(str(error)) if Path(file) == Path(workload).absolute()]
    place = f"workload: {workload}:{lines[-1]}" if lines else f"workload: {workload}: a step"
    text = f"{place}: {type(error).__name__}: {essence(str(error))}"
    return "; ".join(filter(None, (text, hint(str(error)))))


def essence(text: str) -> str:
    """The text of an error of Keras or TensorFlow, without colours and quoted frames."""
    text = _NOISE.sub("", _FRAME.sub("", text))
    if several := _FIRST_ROOT.search(text):
        text = several[1]
    line = " ".join(text.partition("Additional GRPC error information")[0].split())
    if len(line) <= _LONGEST:
        return line
    cut = line[: _LONGEST - 4]
    return f"{cut.rpartition(' ')[0] or cut} ..."


def hint(text: str, y: Tensor = None, prediction: Tensor = None, **_: object) -> str:
    """The fix for a common mistake; empty for others."""
    for pattern, way_out in _HINTS:
        if match := re.search(pattern, text):
            return way_out.format(*match.groups())
    if not (tf.is_tensor(y) and tf.is_tensor(prediction)) or None in (y.shape.rank, prediction.shape.rank):
        return ""
    if y.dtype == tf.string:
        return "labels are text: give numbers in data()"
    labels, outputs = y.shape[1:], prediction.shape[1:]
    if outputs == [*labels, 1]:
        return "give y a last dimension of 1 in data(): y[..., None]"
    if labels.rank == outputs.rank and labels[-1:] == [1]:
        return "take the last dimension of y away in data(): y[..., 0]"
    if labels == outputs and labels.rank:
        return "y seems to be one-hot: give class numbers in data(), y.argmax(-1), or loss()"
    return ""


def _described(value: Tensor) -> str:
    parts = tf.nest.flatten(value)
    texts = [f"{part.dtype.name} {part.shape}" if tf.is_tensor(part) else type(part).__name__ for part in parts]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
