"""ParameterServerStrategy with a ClusterCoordinator.

Workers and ps serve; the chief trains, saves checkpoints and evaluates.
"""

import argparse
import os

import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True, help="an .npz file with x_train, y_train, x_test and y_test")
parser.add_argument("--model_dir", required=True, help="a folder that the chief and the ps share")
parser.add_argument("--steps", type=int, default=600)
parser.add_argument("--steps_per_epoch", type=int, default=50, help="the chief waits, prints and saves after each")
parser.add_argument("--batch_size", type=int, default=64)
args = parser.parse_args()


def load(part):
    with np.load(args.data) as arrays:
        return arrays[f"x_{part}"], arrays[f"y_{part}"].astype("int64")


def dataset():
    """Each worker draws batches of its own."""
    x, y = load("train")
    return tf.data.Dataset.from_tensor_slices((x, y)).shuffle(len(x)).repeat().batch(args.batch_size)


def build(shape, brightest):
    return tf.keras.Sequential(
        [
            tf.keras.layers.InputLayer(shape),
            tf.keras.layers.Rescaling(1 / brightest),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dense(128, activation="relu"),
            tf.keras.layers.Dense(10),
        ]
    )


def train(resolver):
    strategy = tf.distribute.ParameterServerStrategy(resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    x_test, y_test = load("test")
    with strategy.scope():
        model = build(x_test.shape[1:], x_test.max())
        optimizer = tf.keras.optimizers.Adam(1e-3)
        optimizer.build(model.trainable_variables)
        done = tf.Variable(0, dtype=tf.int64, trainable=False)

    @tf.function
    def step(iterator):
        def replica_step(x, y):
            with tf.GradientTape() as tape:
                logits = model(x, training=True)
                loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
            optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
            return loss

        return strategy.run(replica_step, args=next(iterator))

    checkpoint = tf.train.Checkpoint(model=model, optimizer=optimizer, done=done)
    manager = tf.train.CheckpointManager(checkpoint, args.model_dir, max_to_keep=2)
    if manager.latest_checkpoint:
        checkpoint.restore(manager.latest_checkpoint)
        print(f"restored {os.path.basename(manager.latest_checkpoint)}, step {done.numpy()}", flush=True)

    iterator = iter(coordinator.create_per_worker_dataset(dataset))
    while int(done.numpy()) < args.steps:
        results = [coordinator.schedule(step, args=(iterator,)) for _ in range(args.steps_per_epoch)]
        coordinator.join()
        done.assign_add(len(results))
        loss = np.mean([result.fetch() for result in results])
        print(f"step {done.numpy()} of {args.steps}, loss {loss:.4f}", flush=True)
        manager.save()
    accuracy = np.mean(np.argmax(model(x_test).numpy(), axis=1) == y_test)
    print(f"steps {done.numpy()}, test accuracy {accuracy:.4f}")


resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(
        resolver.cluster_spec(), job_name=resolver.task_type, task_index=resolver.task_id, protocol="grpc", start=True
    )
    server.join()
else:
    train(resolver)
