"""A sum that counts its own steps: each appends a line with its time to a file of this process, whatever trainer says.

The steps run on the servers in turn.
"""

import time
from pathlib import Path
from typing import Any

import tensorflow as tf

SETTINGS: dict[str, Any] = {
    "counts": "",  # the folder of the lines
    "steps": 100,
    "last_seconds": 1.0,  # of the last step
}
STEP_SECONDS = 0.04


def compute(cluster: Any) -> dict[str, int]:
    file, total = Path(SETTINGS["counts"]) / f"chief-0-{time.time_ns()}", tf.constant(0)
    for step in range(1, SETTINGS["steps"] + 1):
        time.sleep(SETTINGS["last_seconds"] if step == SETTINGS["steps"] else STEP_SECONDS)
        with tf.device(cluster.device(step % cluster.tasks)):
            total += step
        total.numpy()  # a server that is lost raises here
        with file.open("a") as lines:
            lines.write(f"{time.time():.6f}\n")
        cluster.progress(step)
    return {"total": int(total)}
