"""A script from before TF_CONFIG, as it was: its flags have the addresses of all tasks, and its own task.

python flags.py --ps_hosts=a:2222 --worker_hosts=b:2222,c:2222 --job_name=worker --task_index=0 --data=d.npz
"""

import numpy as np
import tensorflow.compat.v1 as tf

flags = tf.app.flags
flags.DEFINE_string("ps_hosts", "", "host:port of each ps, with commas between them")
flags.DEFINE_string("worker_hosts", "", "host:port of each worker, with commas between them")
flags.DEFINE_string("job_name", "", "ps or worker")
flags.DEFINE_integer("task_index", 0, "index of this task within its job")
flags.DEFINE_string("data", None, "an .npz file with x_train and y_train")
flags.DEFINE_string("model_dir", None, "a folder that worker 0 and the ps share")
flags.DEFINE_integer("steps", 2000, "of all workers together")
FLAGS = flags.FLAGS


def main(_):
    tf.disable_v2_behavior()
    print(f"{FLAGS.job_name} {FLAGS.task_index} of ps {FLAGS.ps_hosts}, workers {FLAGS.worker_hosts}", flush=True)
    cluster = tf.train.ClusterSpec({"ps": FLAGS.ps_hosts.split(","), "worker": FLAGS.worker_hosts.split(",")})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == "ps":
        server.join()

    with np.load(FLAGS.data) as arrays:
        images, labels = arrays["x_train"], arrays["y_train"].astype("int64")
    images = (images / images.max()).astype("float32").reshape(len(images), -1)

    this = f"/job:worker/task:{FLAGS.task_index}"
    with tf.device(tf.train.replica_device_setter(worker_device=this, cluster=cluster)):
        x = tf.placeholder(tf.float32, [None, images.shape[1]])
        y = tf.placeholder(tf.int64, [None])
        weights = tf.get_variable("weights", [images.shape[1], 10], initializer=tf.zeros_initializer())
        bias = tf.get_variable("bias", [10], initializer=tf.zeros_initializer())
        loss = tf.losses.sparse_softmax_cross_entropy(y, x @ weights + bias)
        step = tf.train.get_or_create_global_step()
        train_op = tf.train.GradientDescentOptimizer(0.5).minimize(loss, global_step=step)

    with tf.train.MonitoredTrainingSession(
        master=server.target,
        is_chief=FLAGS.task_index == 0,
        config=tf.ConfigProto(device_filters=["/job:ps", this]),
        checkpoint_dir=FLAGS.model_dir,
        hooks=[tf.train.StopAtStepHook(last_step=FLAGS.steps)],
    ) as session:
        now = printed = 0
        while not session.should_stop():
            rows = np.random.randint(0, len(images), 100)
            _, now, value = session.run([train_op, step, loss], {x: images[rows], y: labels[rows]})
            if now >= printed + 100:
                printed = now
                print(f"worker {FLAGS.task_index}: step {now}, loss {value:.4f}", flush=True)
    print(f"worker {FLAGS.task_index}: done", flush=True)


if __name__ == "__main__":
    tf.app.run()
