"""Runs a program as both tasks of a cluster on this machine."""

import os
import sys

from tests.tools.harness import processes
from trainer.job.cluster import tasks_of
from trainer.job.spec import JobSpec
from trainer.targets.local import ports


def outputs(spec: JobSpec, program: str, **environment: str) -> list[str]:
    """What each of the two tasks prints, the chief first. The program ends with `END`.

    Args:
        program: begins with `BEGIN`, which gives `spec`, `task` and `strategy`.
    """
    job = {"TRAINER_JOB": spec.model_dump_json(), "TF_CPP_MIN_LOG_LEVEL": "3", **environment}
    with ports.reserve([task.name for task in tasks_of(spec)], None) as taken:
        tasks = tasks_of(spec, lambda task_type, index: f"127.0.0.1:{taken[f'{task_type}:{index}']}")
        commands = [
            ([sys.executable, "-c", BEGIN + program + END], {**os.environ, **job, "TF_CONFIG": task.tf_config()})
            for task in tasks
        ]
        with processes(commands) as running:
            return [process.communicate(timeout=120)[0] for process in running]


BEGIN = """
import os
import tensorflow as tf
from trainer.job.load import load_environment
from trainer.job.tf_config import from_environment
from trainer.training.runtime.strategy import make

spec = load_environment()
task = from_environment(spec)
strategy = make(spec, task)
"""
END = """
# The chief's values are on their way after its last operation: it may not end before they have arrived.
strategy.run(lambda: tf.distribute.get_replica_context().all_reduce("SUM", tf.constant(1.0)))
os._exit(0)  # as a child does: TensorFlow's own end waits for its peers
"""
