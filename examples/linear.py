"""The linear regressor of the Estimator guide, without the Estimator: an example for `api: train_and_evaluate`."""

import tensorflow as tf

from trainer.workloads.estimator import EvalSpec, FinalExporter, LinearRegressor, TrainSpec


def input_fn(context):
    """Returns the batches of one replica; called once on each worker."""
    examples = tf.data.Dataset.from_tensors(({"x": [1.0]}, [1.0])).repeat(10_000)
    return examples.batch(context.batch_size, drop_remainder=True)


def train_and_evaluate():
    """Returns the arguments of tf.estimator.train_and_evaluate: estimator, train_spec, eval_spec."""
    return (
        LinearRegressor(["x"]),
        TrainSpec(input_fn, max_steps=200),
        EvalSpec(input_fn, steps=10, throttle_secs=5, exporters=[FinalExporter("final")]),
    )
