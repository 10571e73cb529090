"""The child, which runs TensorFlow: started by the supervisor.

It does its imports, reports "warm", and waits for the order to start, so it can serve as a standby.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import gc
import importlib
import importlib.util
import json
import os
import signal
import sys
import threading
import types
from collections.abc import Callable
from typing import TypeVar

from trainer import host, stack_dump
from trainer.job import environment, load, tf_config
from trainer.job.cluster import Task
from trainer.job.derived import is_server, replicas_in_sync
from trainer.job.errors import Exit
from trainer.job.spec import JobSpec
from trainer.protocol import events
from trainer.protocol.log_lines import log_traceback, start_line
from trainer.training import failure
from trainer.training.private import tensorflow_patches
from trainer.training.runtime.channel import Channel
from trainer.workloads.check import check_workload, runs_code
from trainer.workloads.digests import require_unchanged
from trainer.workloads.load import load_graph, search_working_directory

Loaded = TypeVar("Loaded")


def main() -> None:
    gc.disable()  # until all is imported: collections find nothing, and take a fifth of the time of TensorFlow's import
    host.die_with_parent(signal.SIGKILL)
    stack_dump.register()
    # A crash in native code has its line of Python in the log. Not those of all threads: the others still run, and to
    # read a stack that changes is a crash too.
    faulthandler.enable(all_threads=False)
    search_working_directory()
    channel = Channel()
    spec, code = None, Exit.OK
    try:
        spec = load.load_environment()
        _run(spec, tf_config.from_environment(spec), channel)
    except BaseException as error:
        log_traceback(error)
        code = failure.report(error, spec, channel)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError):
            stream.flush()
    # Not sys.exit: TensorFlow's shutdown waits for peers that may have died.
    os._exit(code)


def _run(spec: JobSpec, task: Task, channel: Channel) -> None:
    if os.environ.pop(environment.AHEAD, None) is None:
        _import(spec, task)
    else:
        _import_slowly(spec, task)
    if is_server(spec, task.type):
        _serve(spec, task, channel)
        return
    tensorflow_patches.keep_no_converted_source()
    loaded: Callable[[], object]
    if spec.traits.trains:
        from trainer.training.task import load_task, prepare_process

        prepare_process(spec, task)
        tensorflow_patches.refuse_strategies(spec.strategy)
        loaded = _loader(spec, lambda: load_task(spec, task, channel.send))
    else:
        from trainer.training.loops import graph_client

        graph_client.prepare_process(spec, task)
        loaded = _loader(spec, lambda: load_graph(spec))
    if task.type == "evaluator":
        # Outside the cluster: TensorFlow must not try to find this task in it.
        del os.environ["TF_CONFIG"]
    _warm(channel)
    go = channel.go.get()
    if go.ring is None:
        _close_to_others(spec, task, channel)
    _loop(spec, task).run(spec, task, loaded, go, channel)


def _import(spec: JobSpec, task: Task) -> None:
    """Imports the task's loop with TensorFlow, or what a server needs of it. The workload is not imported: its threads
    are the user's."""
    if not is_server(spec, task.type):
        _loop(spec, task)
        return
    if spec.tasks.of(task.type).gpus:
        importlib.import_module("trainer.training.runtime.devices")  # only TensorFlow's Python can count them
    from trainer.training.loops import tf_server

    tf_server.load()


def _import_slowly(spec: JobSpec, task: Task) -> None:
    """The same beside a child that trains."""
    if not is_server(spec, task.type):
        importlib.import_module("numpy")  # starts OpenBLAS' threads, which would keep the low priority
    host.at_lowest_priority(lambda: _import(spec, task))


def _loop(spec: JobSpec, task: Task) -> types.ModuleType:
    name = "evaluator" if task.type == "evaluator" else spec.traits.loop
    return importlib.import_module(f"trainer.training.loops.{name}")


def _loader(spec: JobSpec, load: Callable[[], Loaded]) -> Callable[[], Loaded]:
    """Loads the workload during standby, unless its file may run TensorFlow: then the strategy must be created first
    ("Collective ops must be configured at program startup"), and a standby must not take a GPU's memory.

    The files must be those that the job began with, both when they are loaded and when training begins: functions
    import modules when they are called, and AutoGraph reads a function's source from its file.
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
    """Reports that the imports are done, and excludes the imported objects from later garbage collections."""
    gc.freeze()
    gc.enable()
    channel.send(events.Warm())


def _serve(spec: JobSpec, task: Task, channel: Channel) -> None:
    from trainer.training.loops import tf_server

    _warm(channel)
    go = channel.go.get()
    group = spec.tasks.of(task.type)
    if group.gpus:
        from trainer.training.runtime.devices import require_gpus

        require_gpus(group.gpus)
    tf_server.start(spec, task, host.cpus(group.cpu), lambda: _close_to_others(spec, task, channel))
    step = go.resume_step
    channel.send(events.Start(line=start_line(spec, task, replicas_in_sync(spec, task.counts), step)))
    threading.Event().wait()


def _close_to_others(spec: JobSpec, task: Task, channel: Channel) -> None:
    """Closes this task's TensorFlow server to other machines if the whole cluster is on this one."""
    if spec.traits.one_task or not task.on_loopback:
        return
    from trainer.training.runtime import loopback

    assert task.address is not None
    port = task.address[1]
    loopback.close(port, lambda reason: channel.send(events.Line(loopback.warning(task.name, port, reason))))


if __name__ == "__main__":
    main()
