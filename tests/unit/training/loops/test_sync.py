"""What the synchronous loop does with values; the loop itself runs in tests/local."""

import os
import sys

import pytest

from tests.harness import processes
from trainer.job.load import build
from trainer.job.tf_config import tasks_of
from trainer.targets.local import ports
from trainer.training.loops.sync import _affordable

SPEC = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}})

PROGRAM = """
import os
import numpy as np
import tensorflow as tf
from trainer.job.load import load_environment
from trainer.job.tf_config import from_environment
from trainer.training.loops import sync as sync_loop

task = from_environment(load_environment())
strategy = tf.distribute.MultiWorkerMirroredStrategy()
sync_loop._BROADCAST_WORDS = 3
rng = np.random.default_rng(task.index)
values = {
    "floats": rng.random((2, 5), np.float32), "step": np.array(7 + task.index, np.int64),
    "small": rng.integers(0, 9, 3, np.uint8), "none": np.zeros([0, 4], np.float64),
}
shared = sync_loop._from_chief(values, task, 60.0)
print({name: (v.dtype.name, v.tolist()) for name, v in shared.items()}, flush=True)
# The chief's values are on their way after its last operation: it may not end before they have arrived.
strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))
os._exit(0)  # as a child does: TensorFlow's own end waits for its peers
"""


def test_the_chiefs_values_reach_all_tasks_in_pieces() -> None:
    with ports.reserve([task.name for task in tasks_of(SPEC)], None) as taken:
        tasks = tasks_of(SPEC, lambda task_type, index: f"127.0.0.1:{taken[f'{task_type}:{index}']}")
        job = {"TRAINER_JOB": SPEC.model_dump_json(), "TF_CPP_MIN_LOG_LEVEL": "3"}
        commands = [
            ([sys.executable, "-c", PROGRAM], {**os.environ, **job, "TF_CONFIG": task.tf_config()}) for task in tasks
        ]
        with processes(commands) as running:
            outputs = [process.communicate(timeout=120)[0] for process in running]
    # What else they print are TensorFlow's complaints about who ends first.
    chiefs, others = ([line for line in output.splitlines() if line.startswith("{'floats'")] for output in outputs)
    assert chiefs == others
    assert "'step': ('int64', 7)" in chiefs[0]
    assert "'none': ('float64', [])" in chiefs[0]


@pytest.mark.parametrize(
    ("pace", "steps"), [(0.0, 1), (1e-3, 2000), (0.2, 10), (0.21, 9), (1.2, 1), (1.0, 2), (2.1, 1), (100.0, 1)]
)
def test_a_call_takes_a_quarter_of_the_time_to_stop_or_one_step(pace: float, steps: int) -> None:
    assert _affordable(pace, 8.0) == steps
