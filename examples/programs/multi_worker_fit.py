"""Keras on several workers: model.fit under MultiWorkerMirroredStrategy, with a backup after each epoch.

It needs Keras 2: TensorFlow up to 2.15, or tf_keras and TF_USE_LEGACY_KERAS=1.
"""

import argparse
import os
import tempfile

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True, help="an .npz file with x_train, y_train, x_test and y_test")
parser.add_argument("--model_dir", required=True, help="a folder that all workers share")
parser.add_argument("--epochs", type=int, default=3)
parser.add_argument("--steps_per_epoch", type=int, default=100)
parser.add_argument("--batch_size", type=int, default=64, help="of one worker")
args = parser.parse_args()

# Before anything else of TensorFlow: it starts the servers of the cluster.
strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
workers = strategy.num_replicas_in_sync
# Without TF_CONFIG there is one worker, and its resolver has no task.
is_chief = resolver.task_type in (None, "chief") or (
    resolver.task_id == 0 and not resolver.cluster_spec().as_dict().get("chief")
)


def load(part):
    with np.load(args.data) as arrays:
        x = arrays[f"x_{part}"]
        return (x / x.max()).astype("float32")[..., None], arrays[f"y_{part}"].astype("int64")


def datasets():
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    x, y = load("train")
    train = tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x), seed=1, reshuffle_each_iteration=False)
    train = train.repeat().batch(args.batch_size * workers).take(args.steps_per_epoch)
    test = tf.data.Dataset.from_tensor_slices(load("test")).batch(args.batch_size * workers)
    return train.with_options(options), test.with_options(options)


def build_and_compile(shape):
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Conv2D(16, 3, activation="relu", input_shape=shape),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.Adam(1e-3), loss=loss, metrics=["accuracy"])
    return model


tf.keras.utils.set_random_seed(1)
train, test = datasets()
with strategy.scope():
    model = build_and_compile(train.element_spec[0].shape[1:])

callbacks = [
    tf.keras.callbacks.BackupAndRestore(os.path.join(args.model_dir, "backup")),
    tf.keras.callbacks.ModelCheckpoint(os.path.join(args.model_dir, "weights-{epoch:02d}"), save_weights_only=True),
]
model.fit(train, epochs=args.epochs, callbacks=callbacks, verbose=2)
loss, accuracy = model.evaluate(test, verbose=0)

# All workers save, since saving may communicate; only the chief's copy is kept.
with tempfile.TemporaryDirectory() as scratch:
    model.save(os.path.join(args.model_dir if is_chief else scratch, "model"), save_format="tf")
print(f"steps {model.optimizer.iterations.numpy()}, test loss {loss:.4f}, test accuracy {accuracy:.4f}")
