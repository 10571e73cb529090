"""The digits model by the Estimator's contract: what the support table trains under train_and_evaluate."""

from typing import Any

import tensorflow as tf

from trainer.workloads import datasets, digits
from trainer.workloads.estimator import Context, Estimator, EvalSpec, TrainSpec

ARRAYS = datasets.load("digits")


def input_fn(context: Context) -> Any:
    x, y = ARRAYS["x_train"], ARRAYS["y_train"]
    examples = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=1)
    examples = examples.shard(context.num_input_pipelines, tf.cast(context.input_pipeline_id, tf.int64))
    return examples.batch(context.batch_size, drop_remainder=True)


def eval_input_fn(context: Context) -> Any:
    return tf.data.Dataset.from_tensor_slices((ARRAYS["x_test"], ARRAYS["y_test"])).batch(100)


def train_and_evaluate() -> tuple[Estimator, TrainSpec, EvalSpec]:
    return Estimator(digits.model), TrainSpec(input_fn), EvalSpec(eval_input_fn, steps=None)
