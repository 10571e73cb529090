"""Reports the error that ends this process: one line with its exit code, or a lost peer."""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Literal

from trainer import sockets
from trainer.job import tf_config
from trainer.job.errors import Exit, TrainerError, UnreachableError, UserError
from trainer.job.spec import JobSpec
from trainer.protocol import events
from trainer.training.runtime.channel import Channel
from trainer.workloads.locate import original, python_error, where_it_failed
from trainer.workloads.workload import NO_COMMAND_LINE

_MESSAGE_CHARACTERS = 5000
_NO_ARGUMENTS = f"the file ends its process: {NO_COMMAND_LINE}, and raise an error to end the job"


def report(error: BaseException, spec: JobSpec | None, channel: Channel) -> Exit:
    """Reports an error in one line, and distinguishes errors caused by a lost peer from those that would repeat."""
    error = _of_ring(original(error))
    inner = python_error(_as_written(str(error)), spec.workload) if spec else None
    theirs = where_it_failed(error, spec.workload) if spec else None
    # compute() is the user's, so a lost peer surfaces at its line.
    meets_it = spec is not None and not spec.traits.trains
    if isinstance(error, TrainerError):
        code, text = error.code, str(error)
    elif spec is not None and "Could not start gRPC server" in str(error):
        code, text = Exit.USER, str(sockets.port_in_use(tf_config.from_environment(spec)))
        error = UserError(text)
    elif isinstance(error, SystemExit):
        code, text = Exit.USER, f"{theirs or f'workload: {_one_line(error)}'}; {_NO_ARGUMENTS}"
    elif inner is not None or theirs is not None:
        code, text = Exit.USER, inner or theirs or ""
    elif (damaged := _damaged_file(error)) is not None:
        code, text = Exit.USER, damaged
    elif spec is not None and (failed := _graph_error(error, spec.workload)) is not None:
        code, text = Exit.USER, failed
    elif isinstance(error, OSError) and not isinstance(error, ConnectionError):
        code, text = Exit.USER, f"{error.filename or (spec and spec.directory)}: {error.strerror}"
    else:
        code, text = Exit.BUG, f"unexpected {_one_line(error)}{_place(error)}"
    blame = None if inner is not None else _blame(error, at_their_line=theirs is not None and not meets_it)
    if blame is not None and _has_peers():
        # The chief knows whether a peer is lost; if none is, it treats a doubtful error as the task's own.
        otherwise = (int(code), text[:_MESSAGE_CHARACTERS]) if blame == "doubtful" else (None, None)
        channel.send(events.PeerLost(_one_line(error), *otherwise))
        return Exit.BUG
    channel.send(events.Failed(code=int(code), message=text[:_MESSAGE_CHARACTERS]))
    return code


def _of_ring(error: BaseException) -> BaseException:
    """The ring's error in place of the one in which TensorFlow quotes our function that waited for a sum."""
    if not _has_tensorflow():
        return error
    import tensorflow as tf

    from trainer.training.exchange.ring import DIFFERENT, LOST

    text = str(error) if isinstance(error, tf.errors.OpError) else ""
    if match := re.search(rf"{LOST}: [^\n]*", text):
        lost: BaseException = tf.errors.UnavailableError(None, None, match[0])
        return lost
    if match := re.search(rf"{DIFFERENT}: [^\n]*", text):
        return UserError(f"workload: {match[0]}; model() must create the same layers in the same order in each task")
    return error


def _as_written(text: str) -> str:
    if not _has_tensorflow():
        return text
    from trainer.training.private.tensorflow_private import as_written

    return as_written(text)


def _graph_error(error: BaseException, workload: str) -> str | None:
    if not _has_tensorflow():
        return None
    from trainer.training.runtime.user_code import graph_error

    return graph_error(error, workload)


def _damaged_file(error: BaseException) -> str | None:
    if not _has_tensorflow():
        return None
    import tensorflow as tf

    from trainer.training.inputs.records.damage import named
    from trainer.training.runtime.user_code import may_be_a_lost_peers

    return named(error) if isinstance(error, tf.errors.OpError) and not may_be_a_lost_peers(error) else None


def _blame(error: BaseException, *, at_their_line: bool) -> Literal["certain", "doubtful"] | None:
    """Whether an error comes from a lost peer.

    A graph's own errors have some of the same codes, and so have errors of calls in the user's code, for example to a
    network file system. Lost peers surface at the user's lines too: each variable of model() is sent to all tasks.
    """
    if isinstance(error, UnreachableError):
        return "doubtful"
    if not _has_tensorflow():
        return None
    from trainer.training.runtime.user_code import LOST_PEER_FOR_CERTAIN, may_be_a_lost_peers

    if not may_be_a_lost_peers(error):
        return None
    for_certain = isinstance(error, LOST_PEER_FOR_CERTAIN) and not at_their_line
    return "certain" if for_certain or "tensorflow.CoordinationService" in str(error) else "doubtful"


def _has_tensorflow() -> bool:
    """Whether this process has imported TensorFlow; a server has a bare module of that name (tensorflow_private.py)."""
    return hasattr(sys.modules.get("tensorflow"), "errors")


def _has_peers() -> bool:
    """Whether this process belongs to a cluster of several tasks; an evaluator's has no TF_CONFIG by now."""
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    return sum(len(addresses) for addresses in cluster.values()) > 1


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())[:300]
    if _has_tensorflow():
        from trainer.training.runtime.user_code import essence

        text = essence(str(error))
    return f"{type(error).__name__}: {text}"


def _place(error: BaseException) -> str:
    """The line that raised it. The log with the traceback may be on a volume that no one can read any more."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
