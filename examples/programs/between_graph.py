"""Between-graph replication, as before TensorFlow 2: each worker builds the graph, the variables are on the ps.

The cluster has ps and workers; worker 0 is the chief, which saves and at the end evaluates.
"""

import argparse
import json
import os

import numpy as np
import tensorflow.compat.v1 as tf

parser = argparse.ArgumentParser()
parser.add_argument("--data", required=True, help="an .npz file with x_train, y_train, x_test and y_test")
parser.add_argument("--model_dir", required=True, help="a folder that worker 0 and the ps share")
parser.add_argument("--steps", type=int, default=3000, help="of all workers together")
parser.add_argument("--checkpoint_steps", type=int, default=500)
parser.add_argument("--batch_size", type=int, default=100)
args = parser.parse_args()


def load(part):
    with np.load(args.data) as arrays:
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"].astype("int64")
    return (x / x.max()).astype("float32").reshape(len(x), -1), y


def model(inputs):
    x = tf.placeholder(tf.float32, [None, inputs], name="x")
    y = tf.placeholder(tf.int64, [None], name="y")
    hidden = tf.get_variable("hidden", [inputs, 128], initializer=tf.truncated_normal_initializer(stddev=0.05))
    hidden_bias = tf.get_variable("hidden_bias", [128], initializer=tf.zeros_initializer())
    output = tf.get_variable("output", [128, 10], initializer=tf.truncated_normal_initializer(stddev=0.05))
    output_bias = tf.get_variable("output_bias", [10], initializer=tf.zeros_initializer())
    logits = tf.nn.relu(x @ hidden + hidden_bias) @ output + output_bias
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=y, logits=logits))
    accuracy = tf.reduce_mean(tf.cast(tf.equal(tf.argmax(logits, 1), y), tf.float32))
    return x, y, loss, accuracy


def train(server, cluster, index):
    images, labels = load("train")
    batches = np.random.default_rng(index)
    with tf.Graph().as_default():
        with tf.device(tf.train.replica_device_setter(cluster=cluster, worker_device=f"/job:worker/task:{index}")):
            x, y, loss, _ = model(images.shape[1])
            step = tf.train.get_or_create_global_step()
            train_op = tf.train.AdamOptimizer(1e-3).minimize(loss, global_step=step)
        # Without the filters a session waits for all workers, also for those that are already done.
        filters = ["/job:ps", f"/job:worker/task:{index}"]
        with tf.train.MonitoredTrainingSession(
            master=server.target,
            is_chief=index == 0,
            config=tf.ConfigProto(device_filters=filters),
            checkpoint_dir=args.model_dir,
            save_checkpoint_steps=args.checkpoint_steps,
            hooks=[tf.train.StopAtStepHook(last_step=args.steps)],
        ) as session:
            done = printed = 0
            while not session.should_stop():
                rows = batches.integers(len(images), size=args.batch_size)
                _, now, value = session.run([train_op, step, loss], {x: images[rows], y: labels[rows]})
                done += 1
                if now >= printed + 100:
                    printed = now
                    print(f"step {now} of {args.steps}, loss {value:.4f}, {done} of them here", flush=True)


def evaluate():
    images, labels = load("test")
    with tf.Graph().as_default(), tf.Session() as session:
        x, y, _, accuracy = model(images.shape[1])
        step = tf.train.get_or_create_global_step()
        tf.train.Saver().restore(session, tf.train.latest_checkpoint(args.model_dir))
        steps, value = session.run([step, accuracy], {x: images, y: labels})
    print(f"steps {steps}, test accuracy {value:.4f}")


tf.disable_v2_behavior()
config = json.loads(os.environ["TF_CONFIG"])
cluster, task = tf.train.ClusterSpec(config["cluster"]), config["task"]
server = tf.train.Server(cluster, job_name=task["type"], task_index=task["index"])
if task["type"] == "ps":
    server.join()
else:
    train(server, cluster, task["index"])
    if task["index"] == 0:
        evaluate()
