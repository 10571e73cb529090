"""Jobs in which one task hangs, each for another reason, and where the log must say that it is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

DEADLINES = {"start": 120, "rejoin": 60, "hang": 15, "progress": 45}
HERE = "# here"
"""Marks the line that a verdict must name."""

_MODEL = """
import errno, json, os, socket, threading, time
import keras
import numpy as np
import tensorflow as tf
{top}
TASK = json.loads(os.environ["TF_CONFIG"])["task"] if "TF_CONFIG" in os.environ else {{}}


def read(number, training):
    if number == 60 and training and TASK.get("index") == 1:
        {hang}
    return np.full(5, number % 3, "float32"), np.int32(number % 3)


def model():
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(3)])


def loss(y, prediction):
    return keras.losses.sparse_categorical_crossentropy(y, prediction, from_logits=True)


def data(shard):
    training = shard.split == "train"
    def rows():
        for number in range(10_000 if training else 30):
            yield read(number, training)
    return tf.data.Dataset.from_generator(rows, output_signature=(tf.TensorSpec((5,)), tf.TensorSpec((), tf.int32)))
"""

_PROGRAM = """
import json, os, time
import tensorflow as tf
import trainer

TASK = json.loads(os.environ["TF_CONFIG"])["task"]
strategy = tf.distribute.MultiWorkerMirroredStrategy()


def reduce(value):
    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(lambda: tf.identity(value)), axis=None)


total = tf.function(reduce)


def step(number):
    return float(total(tf.constant(float(number))))


def final(values):
    # all wait for what the first one writes
    if TASK["index"] == 0:
        with open("sum", "w") as file:
            file.write(str(sum(values)))
    while not os.path.exists("sum"):
        time.sleep(1)  HERE


values = []
for number in range(1, 31):
    if number == 20 and TASK["index"] == 1:
        continue  # the collective of this step is left out
    values.append(step(number))
    trainer.report(step=number, total=40)
final(values)
"""


@dataclass(frozen=True)
class Hang:
    """A job that hangs."""

    spec: dict[str, Any]
    files: dict[str, str]
    """By name, beside the spec."""
    names: str
    """What a line of the log must have: the task, and where it is. The first such line comes before the job acts."""
    stops: str | None = None
    """The task whose child the test must stop with SIGSTOP, once the job makes steps."""

    def write(self, folder: Path) -> dict[str, Any]:
        for name, text in self.files.items():
            (folder / name).write_text(text)
        where = {"workload": str(folder / self.spec["workload"])} if "workload" in self.spec else {}
        return {**self.spec, **where}


def _spec(name: str, **more: Any) -> dict[str, Any]:
    return {
        "name": f"hang-{name}",
        "strategy": "multi_worker_mirrored",
        "tasks": {"worker": 3},
        "max_restarts": 0,
        "warm_standby": False,
        "deadlines": DEADLINES,
        **more,
    }


def _model(name: str, hang: str, top: str = "", inside: str = "in rows(), ") -> Hang:
    text = _MODEL.format(hang=hang, top=top)
    train = {"steps": 5000, "batch_size": 4, "steps_per_call": 2, "checkpoint_steps": 5000}
    spec = _spec(name, workload="mine.py", train=train)
    return Hang(spec, {"mine.py": text}, f"worker:1 is {inside}at mine.py:{_line(text)}")


def _line(text: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if HERE in line)


def _import() -> Hang:
    """Only worker:1 waits, so the file is the same everywhere."""
    hang = _model("import", "pass", top=f"import slow  {HERE}", inside="")
    slow = (
        'import json, os, time\nif json.loads(os.environ["TF_CONFIG"])["task"]["index"] == 1:\n    time.sleep(9999)\n'
    )
    return Hang(hang.spec, {**hang.files, "slow.py": slow}, "worker:1 is at slow.py:3 <module>")


def _skipped() -> Hang:
    text = _PROGRAM.replace("HERE", HERE)
    deadlines = {**DEADLINES, "progress": 40}
    spec = _spec("skipped", program=["python", "program.py"], deadlines=deadlines, resume="none")
    del spec["warm_standby"]
    return Hang(spec, {"program.py": text}, f"worker:1 is at program.py:{_line(text)} final()")


def _stopped(name: str, task: str, **more: Any) -> Hang:
    hang = _model(name, f"pass  {HERE}")
    train = {**hang.spec["train"], "steps": 100_000}
    return Hang({**hang.spec, "train": train, **more}, hang.files, f"{task} is stopped by a signal (SIGSTOP)", task)


_SILENT = "silent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); silent.bind(('127.0.0.1', 0))"
_QUERY = (
    "asked = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); asked.connect(silent.getsockname()); "
    f"asked.send(b'name?'); asked.recv(512)  {HERE}"
)
_FULL = f"""while True:
            try:
                os.write(os.open("/dev/full", os.O_WRONLY), b"cache")
            except OSError as error:
                assert error.errno == errno.ENOSPC
                time.sleep(9999)  {HERE}"""

HANGS = {
    "slow_input": _model("slow-input", f"time.sleep(9999)  {HERE}"),
    "lock": _model("lock", f"LOCK.acquire(); LOCK.acquire()  {HERE}", top="LOCK = threading.Lock()"),
    "endless_loop": _model("endless-loop", f"while True: number += 1  {HERE}"),
    "dns": _model("dns", _QUERY, top=_SILENT),
    "full_disk": _model("full-disk", _FULL),
    "pipe": _model("pipe", f"os.read(os.pipe()[0], 1)  {HERE}"),
    "import": _import(),
    "skipped_collective": _skipped(),
    "sigstop": _stopped("sigstop", "worker:1"),
    "silent_ps": _stopped("silent-ps", "ps:0", strategy="parameter_server", tasks={"worker": 2, "ps": 1}),
}
"""Ten reasons. A name server that never answers is one on loopback: machines' own differ."""
