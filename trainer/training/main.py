"""The process that holds TensorFlow: `python -m trainer.training.main`, started by the supervisor.

It imports what it needs, reports "warm", and waits for the order to go: so a spare can stand by.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import importlib.util
import json
import os
import re
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeVar

from trainer import host
from trainer.job import environment, load, tf_config
from trainer.job.derived import is_server, replicas_in_sync, steps_are_ours, uses_tf_keras
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.spec import JobSpec
from trainer.job.tf_config import Task
from trainer.protocol.log_lines import log_traceback, start_line
from trainer.training.channel import Channel
from trainer.workloads.check import check_workload, runs_code
from trainer.workloads.digests import require_unchanged
from trainer.workloads.load import load_graph
from trainer.workloads.locate import original, where_it_failed

Loaded = TypeVar("Loaded")

_MESSAGE_CHARACTERS = 5000
"""What `workload.digests` gave the supervisor at its start, as JSON: the chief let it in with that."""


def main() -> None:
    gc.disable()  # until all is imported: collections in between find nothing, and are a fifth of TensorFlow's import
    host.die_with_parent(signal.SIGKILL)
    channel = Channel()
    spec, code = None, Exit.OK
    try:
        spec = load.load_environment()
        _run(spec, tf_config.from_environment(spec), channel)
    except BaseException as error:
        log_traceback(error)
        code = _report(error, spec, channel)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    # Not sys.exit: TensorFlow's shutdown waits for peers that may be gone.
    os._exit(code)


def _run(spec: JobSpec, task: Task, channel: Channel) -> None:
    if is_server(spec, task.type):
        _warm(channel)
        _serve(spec, task, channel)
        return
    if uses_tf_keras(spec):
        _use_tf_keras(spec)
    loaded: Callable[[], object]
    if spec.traits.trains:
        from trainer.training.task import load_task, prepare_process

        prepare_process(spec, task)
        loaded = _loader(spec, lambda: load_task(spec, task))
    else:
        from trainer.training.loops import graph_client

        graph_client.prepare_process(spec, task)
        loaded = _loader(spec, lambda: load_graph(spec))
    if task.type == "evaluator":
        # Outside the cluster: TensorFlow must not try to find this task in it.
        del os.environ["TF_CONFIG"]
    loop = importlib.import_module(f"trainer.training.loops.{_loop(spec, task)}")
    _warm(channel)
    go = channel.orders.get()["go"]
    _close_to_others(spec, task, channel)
    loop.run(spec, task, loaded, go["resume_step"], channel)


def _loop(spec: JobSpec, task: Task) -> str:
    return "evaluator" if task.type == "evaluator" else spec.api_traits.loop or spec.traits.loop


def _loader(spec: JobSpec, load: Callable[[], Loaded]) -> Callable[[], Loaded]:
    """Loads the workload now, while standing by, unless its file may run TensorFlow: the strategy comes first then
    ("Collective ops must be configured at program startup"), and no memory of a GPU is taken before it is wanted.

    What is loaded is what the job began with. So must the files be when training begins, though they are loaded:
    functions import modules when they are called, and AutoGraph reads a function's text from its file.
    """
    began_with = json.loads(os.environ.pop(environment.WORKLOAD))
    once = functools.cache(load)

    def loaded() -> Loaded:
        require_unchanged(spec, began_with)
        value = once()
        require_unchanged(spec, began_with)
        return value

    require_unchanged(spec, began_with)
    check_workload(spec)
    if not runs_code(spec):
        loaded()
    return loaded


def _warm(channel: Channel) -> None:
    """Reports that the imports are done. What was imported stays: later garbage collections skip it."""
    gc.freeze()
    gc.enable()
    channel.tell("warm")


def _use_tf_keras(spec: JobSpec) -> None:
    if importlib.util.find_spec("tf_keras") is None:
        raise UserError(
            f"api: keras_fit: under {spec.strategy} fit needs tf_keras, for Keras 3 cannot do it; "
            "pip install --no-deps tf_keras==2.21.0, or set api: loop"
        )
    os.environ["TF_USE_LEGACY_KERAS"] = "1"  # before TensorFlow is imported: tf.keras is tf_keras then


def _serve(spec: JobSpec, task: Task, channel: Channel) -> None:
    from trainer.training.loops import tf_server

    go = channel.orders.get()["go"]
    group = spec.tasks.of(task.type)
    if group.gpus:
        # Only TensorFlow's Python can count its devices.
        from trainer.training.devices import require_gpus

        require_gpus(group.gpus)
    tf_server.start(spec, task, host.cpus(group.cpu), lambda: _close_to_others(spec, task, channel))
    step = go["resume_step"]
    channel.tell("start", line=start_line(spec, task, replicas_in_sync(spec, task.counts), step))
    threading.Event().wait()


def _close_to_others(spec: JobSpec, task: Task, channel: Channel) -> None:
    """Where the cluster is this machine, other machines have no business with this task's TensorFlow server."""
    if spec.traits.one_task or not task.on_loopback:
        return
    from trainer.training import loopback

    assert task.address is not None
    port = task.address[1]
    loopback.close(port, lambda reason: channel.tell("line", text=loopback.warning(task.name, port, reason)))


def _report(error: BaseException, spec: JobSpec | None, channel: Channel) -> Exit:
    """Reports an error in one line, and separates what a lost peer causes from what would happen again."""
    error = original(error)
    inner = python_error(str(error), spec.workload) if spec else None
    theirs = where_it_failed(error, spec.workload) if spec else None
    # compute() and fit() are the user's: it is their line that meets a lost peer.
    meets_it = spec is not None and not steps_are_ours(spec)
    if isinstance(error, TrainerError):
        code, text = error.code, str(error)
    elif spec is not None and "Could not start gRPC server" in str(error):
        code, text = Exit.USER, str(host.port_in_use(tf_config.from_environment(spec)))
        error = UserError(text)
    elif inner is not None or theirs is not None:
        code, text = Exit.USER, inner or theirs or ""
    elif spec is not None and (failed := _graph_error(error, spec.workload)) is not None:
        code, text = Exit.USER, failed
    elif isinstance(error, OSError) and not isinstance(error, ConnectionError):
        code, text = Exit.USER, f"{error.filename or (spec and spec.directory)}: {error.strerror}"
    else:
        code, text = Exit.BUG, f"unexpected {_one_line(error)}"
    blame = None if inner is not None else _blame(error, at_their_line=theirs is not None and not meets_it)
    if blame is not None and _has_peers():
        # The chief knows whether a peer is gone; if none is, a doubtful error is taken at its word.
        otherwise = {"code": int(code), "message": text[:_MESSAGE_CHARACTERS]} if blame == "doubtful" else {}
        channel.tell("peer_lost", text=_one_line(error), **otherwise)
        return Exit.BUG
    channel.tell("error", code=int(code), message=text[:_MESSAGE_CHARACTERS])
    return code


def _graph_error(error: BaseException, workload: str) -> str | None:
    if not _has_tensorflow():
        return None
    from trainer.training.user_code import graph_error

    return graph_error(error, workload)


def python_error(text: str, workload: str) -> str | None:
    """The Python exception in an error of TensorFlow, which quotes the traceback of a function that a graph calls:
    from_generator, py_function, numpy_function (py_func.cc); None if there is none."""
    # A peer's error comes with gRPC's copy of it: escaped, and cut where it is long. Any copy may be the whole one.
    plain = text.replace("\\n", "\n").replace('\\"', '"')
    places = []
    for trace in plain.split("Traceback (most recent call last):\n")[1:]:
        last = re.search(r"^\S.*", trace, re.MULTILINE)
        for file, line in re.findall(r'^ +File "(.+)", line (\d+)', trace, re.MULTILINE):
            places.append(
                (Path(file) == Path(workload).absolute(), file, line, last[0][:300] if last else "an exception")
            )
    if not places:
        return None
    theirs, file, line, what = max(reversed(places), key=lambda place: place[0])
    return f"workload: {workload}:{line}: {what}" if theirs else f"workload: {workload}: {file}:{line}: {what}"


def _blame(error: BaseException, *, at_their_line: bool) -> Literal["certain", "doubtful"] | None:
    """Whether an error of TensorFlow comes from a lost peer.

    Errors of a graph's own have some of the codes, too; and so has what the user's code calls by itself, as a file
    system in the network. But the user's lines meet lost peers as well: each variable of model() is sent to all tasks.
    """
    if not _has_tensorflow():
        return None
    from trainer.training.user_code import LOST_PEER, LOST_PEER_FOR_CERTAIN

    if not isinstance(error, LOST_PEER):
        return None
    for_certain = isinstance(error, LOST_PEER_FOR_CERTAIN) and not at_their_line
    return "certain" if for_certain or "tensorflow.CoordinationService" in str(error) else "doubtful"


def _has_tensorflow() -> bool:
    """Whether this process has imported TensorFlow. Under that name a server has a bare module (server.py)."""
    return hasattr(sys.modules.get("tensorflow"), "errors")


def _has_peers() -> bool:
    """Whether this process belongs to a cluster of several tasks; an evaluator's has no TF_CONFIG by now."""
    cluster = json.loads(os.environ.get("TF_CONFIG") or "{}").get("cluster", {})
    return sum(len(addresses) for addresses in cluster.values()) > 1


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


if __name__ == "__main__":
    main()
