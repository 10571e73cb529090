"""Checks the exports: a new process loads them, as a program that uses the model would, and compares their outputs.

A job can train well and its export be useless: a class is not registered, get_config() forgets an argument, a layer is
random at inference. The process begins to import TensorFlow while the job evaluates; it has no TF_CONFIG and no GPU. It
runs `reloaded.py`.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import keras
import tensorflow as tf

from trainer import host
from trainer.job import environment
from trainer.model_dir import layout
from trainer.model_dir.files import read_json
from trainer.training.outputs import reloaded
from trainer.training.private import keras_private
from trainer.training.runtime.channel import Channel
from trainer.training.runtime.user_code import essence
from trainer.training.task import TrainingTask
from trainer.workloads.types import Model, Tensor

EXAMPLES = 8
"""Examples of the test split on which outputs are compared."""
CHECK_SECONDS = 120.0
"""Maximum wait for the process after the exports are written; less if deadlines.evaluation is."""
EXIT_POLL_SECONDS = 0.02
"""Seconds between two looks whether the process has ended."""
IMPORTS_BYTES = 320 << 20
"""Memory of its own that a process has once TensorFlow and Keras are imported (190 MiB), and some for graphs."""
COPIES = 8
"""Copies of the variables in that process at its peak: files, what is read of them, and the loaded models (measured:
7.5)."""
TOLERANCES = {"float64": 1e-8, "float32": 1e-4, "float16": 1e-2, "bfloat16": 5e-2}
"""Maximum difference as a share of the output's largest value, by the coarsest type that a layer computes in. The
graph of a SavedModel rounds in another order."""


class Reloading:
    """The process. It waits for `verdicts`, and ends with this one if that is never called."""

    def __init__(self, job: TrainingTask, variable_bytes: int) -> None:
        """Starts it, if the memory suffices and the spec does not forbid it."""
        self._job = job
        self._why_not = _why_not(job, IMPORTS_BYTES + COPIES * variable_bytes)
        self._process = None if self._why_not else _start()

    def verdicts(self, models: Mapping[str, Model], channel: Channel) -> dict[str, str]:
        """What the exports of these models are, by name: "equal", or how they differ and why."""
        verdicts: dict[str, object] = {}
        if self._process is not None and models:
            # Not in model_dir: others may be able to write there.
            with tempfile.TemporaryDirectory(prefix="trainer-reload-", ignore_cleanup_errors=True) as folder:
                try:
                    write_request(Path(folder), self._job, models)
                    _begin(self._process, folder)
                    self._why_not = self._wait(self._process, channel)
                    verdicts = read_json(Path(folder, "verdicts.json"))
                except OSError as error:
                    self._why_not = f"{error.filename or folder}: {error.strerror}"
                finally:
                    self._process.kill()
                    self._process.wait()
        return {name: str(verdicts.get(name, f"not checked: {self._why_not}")) for name in models}

    def _wait(self, process: subprocess.Popen[bytes], channel: Channel) -> str | None:
        """Why the process has not checked every export; None if it has."""
        limit = min(CHECK_SECONDS, self._job.spec.deadlines.evaluation)
        deadline = time.monotonic() + limit
        while process.poll() is None:
            if channel.stopping.is_set():
                return "the job was stopped"
            if time.monotonic() > deadline:
                return f"it takes longer than {limit:g} s"
            time.sleep(EXIT_POLL_SECONDS)
        return f"the process that loads it ended with code {process.returncode}" if process.returncode else None


def write_request(folder: Path, job: TrainingTask, models: Mapping[str, Model]) -> None:
    """Writes what the process is to check, and the outputs to compare with."""
    model = next(iter(models.values()))
    digests = {name: reloaded.digest(layout.export(job.spec.directory) / name) for name in models}
    request: dict[str, object] = {"digests": digests, "tolerance": tolerance(model)}
    try:
        x = _examples(job)
        with tf.device("CPU:0"):
            outputs = {name: reloaded.outputs(each, x) for name, each in models.items()}
        for name, expected in outputs.items():
            tf.data.Dataset.from_tensors((x, tuple(expected))).save(str(folder / f"{name}.batch"))
    except Exception as error:  # of user code: with its own evaluate(model) it may have no test split
        request["not_compared"] = f"{type(error).__name__}: {essence(str(error))}"
    (folder / "request.json").write_text(json.dumps(request))


def _why_not(job: TrainingTask, needed: int) -> str | None:
    if not job.spec.check_exports:
        return "check_exports is false"
    # In a container a process too many would end the whole job.
    free = host.free_memory()
    if free is None or free >= needed:
        return None
    return f"it takes {needed >> 20} MiB of memory, and {free >> 20} are free; raise tasks.{job.task.type}.memory"


def _start() -> subprocess.Popen[bytes]:
    environ = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
    return subprocess.Popen(
        host.command("trainer.training.outputs.reloaded"),
        stdin=subprocess.PIPE,
        stdout=sys.stderr,
        env={**environ, "CUDA_VISIBLE_DEVICES": "-1", environment.PARENT: str(os.getpid())},
    )


def _begin(process: subprocess.Popen[bytes], folder: str) -> None:
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(os.fsencode(folder) + b"\n")
        process.stdin.close()


def _examples(job: TrainingTask) -> Tensor:
    """The inputs of the first examples of the test split."""
    x, *_ = keras.utils.unpack_x_y_sample_weight(next(iter(job.evaluation())))
    return tf.nest.map_structure(lambda part: part[:EXAMPLES], x)


def tolerance(model: Model) -> float:
    dtypes = (str(getattr(layer, "compute_dtype", "float32")) for layer in keras_private.all_layers(model))
    return max(TOLERANCES.get(dtype, 0.0) for dtype in dtypes)
