"""A custom training loop under MultiWorkerMirroredStrategy, with its own checkpoints: runs with Keras 2 and Keras 3."""

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
parser.add_argument("--checkpoint_steps", type=int, default=50)
parser.add_argument("--batch_size", type=int, default=64, help="of one worker")
args = parser.parse_args()

strategy = tf.distribute.MultiWorkerMirroredStrategy()
resolver = strategy.cluster_resolver
batch_size = args.batch_size * strategy.num_replicas_in_sync
is_chief = resolver.task_type in (None, "chief") or (
    resolver.task_id == 0 and not resolver.cluster_spec().as_dict().get("chief")
)


def dataset(part):
    with np.load(args.data) as arrays:
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"].astype("int64")
    found = tf.data.Dataset.from_tensor_slices(((x / x.max()).astype("float32")[..., None], y))
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return found.with_options(options)


train, test = dataset("train"), dataset("test")
train = train.shuffle(len(train), seed=1, reshuffle_each_iteration=False).repeat()
tf.keras.utils.set_random_seed(1)
with strategy.scope():
    model = tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer(train.element_spec[0].shape),
            tf.keras.layers.Conv2D(16, 3, activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )
    optimizer = tf.keras.optimizers.Adam(1e-3)
    optimizer.build(model.trainable_variables)
    accuracy = tf.keras.metrics.SparseCategoricalAccuracy()
    step = tf.Variable(0, dtype=tf.int64, trainable=False)


def losses_of(y, logits):
    return tf.nn.compute_average_loss(
        tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits), global_batch_size=batch_size
    )


@tf.function
def train_step(batch):
    def replica_step(x, y):
        with tf.GradientTape() as tape:
            loss = losses_of(y, model(x, training=True))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    return strategy.reduce(tf.distribute.ReduceOp.SUM, strategy.run(replica_step, args=batch), axis=None)


@tf.function
def test_step(batch):
    strategy.run(lambda x, y: accuracy.update_state(y, model(x, training=False)), args=batch)


# All workers save, since saving may communicate; only the chief's checkpoints are kept.
checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, step=step)
folder = args.model_dir if is_chief else tempfile.mkdtemp()
manager = tf.train.CheckpointManager(checkpoint, folder, max_to_keep=2)
latest = tf.train.latest_checkpoint(args.model_dir)
if latest:
    checkpoint.restore(latest)
    print(f"restored {os.path.basename(latest)}, step {step.numpy()}", flush=True)

first, last = int(step.numpy()), args.epochs * args.steps_per_epoch
batches = train.batch(batch_size).skip(first).take(last - first)
for batch in strategy.experimental_distribute_dataset(batches):
    loss = train_step(batch)
    step.assign_add(1)
    if (now := int(step.numpy())) % 10 == 0:
        print(f"step {now} of {last}, loss {loss:.6f}", flush=True)
    if now % args.checkpoint_steps == 0 or now == last:
        manager.save()

for batch in strategy.experimental_distribute_dataset(test.batch(batch_size)):
    test_step(batch)
print(f"steps {step.numpy()}, test accuracy {accuracy.result().numpy():.4f}")
