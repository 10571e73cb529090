"""Compiled models as people write them, each with its data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import layers, metrics, ops, optimizers

generator = np.random.default_rng(3)
X = generator.normal(size=(640, 8)).astype("float32")
Y = (X.sum(axis=1) > 0).astype("int32")
WEIGHTS = generator.uniform(size=640).astype("float32")
SIGNED = {"a": Y, "b": X[:, :2]}


def plain(optimizer: Any = "adam", **given: Any) -> Any:
    dense = layers.Dense(16, activation="relu", kernel_regularizer="l2", activity_regularizer="l1")
    model = keras.Sequential([keras.Input((8,)), dense, layers.Dense(1)])
    settings = {"loss": keras.losses.BinaryCrossentropy(from_logits=True), "metrics": ["accuracy"], **given}
    model.compile(optimizer=optimizer, **settings)
    return model


def half() -> Any:
    model = keras.Sequential([keras.Input((8,)), layers.Dense(16, activation="relu"), layers.Dense(1, dtype="float32")])
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(optimizers.SGD(0.2, momentum=0.9, clipnorm=0.2), loss=loss, metrics=["accuracy"])
    return model


def synchronized() -> Any:
    hidden = [layers.Dense(16), layers.BatchNormalization(synchronized=True), layers.ReLU()]
    model = keras.Sequential([keras.Input((8,)), *hidden, layers.Dense(1)])
    model.compile(optimizers.SGD(0.1), loss=keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def two_outputs(**given: Any) -> Any:
    inputs = keras.Input((8,))
    hidden = layers.Dense(16, activation="tanh")(inputs)
    outputs = {"a": layers.Dense(2, name="a")(hidden), "b": layers.Dense(2, name="b")(hidden)}
    model = keras.Model(inputs, outputs)
    classes = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(
        "adam", loss={"a": classes, "b": "mse"}, loss_weights={"a": 0.3, "b": 2.0},
        metrics={"a": "accuracy", "b": [metrics.R2Score(), "mae"]}, weighted_metrics={"b": "mse"},
    )  # fmt: skip
    return model


def list_of_outputs() -> Any:
    inputs = keras.Input((8,))
    hidden = layers.Dense(16, activation="tanh")(inputs)
    model = keras.Model(inputs, [layers.Dense(1, name="a")(hidden), layers.Dense(2, name="b")(hidden)])
    model.compile("adam", loss=["mse", "mae"], loss_weights=[0.5, 1.0], metrics=[["mae"], ["mse"]])
    return model


class Largest(metrics.Metric):  # type: ignore[misc]
    """State that does not add up."""

    def __init__(self, name: str = "largest") -> None:
        super().__init__(name=name)
        self.largest = self.add_variable((), "zeros", name="largest")

    def update_state(self, y: Any, prediction: Any, sample_weight: Any = None) -> None:
        self.largest.assign(ops.maximum(self.largest, ops.max(prediction)))

    def result(self) -> Any:
        return self.largest


class Counted(metrics.Metric):  # type: ignore[misc]
    """State of its own that adds up, in integers."""

    def __init__(self, name: str = "counted") -> None:
        super().__init__(name=name)
        self.positive = self.add_variable((), "zeros", dtype="int32", name="positive")

    def update_state(self, y: Any, prediction: Any, sample_weight: Any = None) -> None:
        self.positive.assign_add(ops.sum(ops.cast(prediction > 0, "int32")))

    def result(self) -> Any:
        return self.positive


class Scaled(Counted):
    """Has a constant, which reset_state leaves as it is."""

    def __init__(self) -> None:
        super().__init__("scaled")
        self.factor = self.add_variable((), keras.initializers.Constant(3.0), name="factor")

    def reset_state(self) -> None:
        self.positive.assign(0)

    def result(self) -> Any:
        return self.factor * ops.cast(self.positive, "float32")


class NeverReset(Counted):
    def reset_state(self) -> None:
        pass


class Centralized(optimizers.SGD):  # type: ignore[misc]
    """Has an `apply` of its own, and does not know what it is called with by name."""

    def apply(self, grads: Any, trainable_variables: Any = None) -> None:
        super().apply([None if g is None else g - ops.mean(g) for g in grads], trainable_variables)


class Penalty(layers.Layer):  # type: ignore[misc]
    """A loss of its own, and a weight that nothing depends on."""

    def build(self, _: Any) -> None:
        self.unused = self.add_weight(shape=(3,), name="unused")

    def call(self, x: Any) -> Any:
        self.add_loss(0.1 * ops.mean(ops.square(x)))
        return x


def losses_of_layers() -> Any:
    inputs = keras.Input((8,))
    model = keras.Model(inputs, layers.Dense(8)(Penalty()(layers.Dense(4)(inputs))))
    model.compile(Centralized(0.5, momentum=0.9, clipnorm=0.05))
    return model


class Guided(keras.Model):  # type: ignore[misc]
    """Updates all metrics in a loop, as in Keras' guide: those of compile are one, with a dict for its result."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            prediction = self(x, training=True)
            loss = self.compute_loss(y=y, y_pred=prediction)
        slopes = tape.gradient(loss, self.trainable_weights)
        self.optimizer.apply_gradients(zip(slopes, self.trainable_weights, strict=True))
        for metric in self.metrics:
            if metric.name == "loss":
                metric.update_state(loss)
            else:
                metric.update_state(y, prediction)
        return {metric.name: metric.result() for metric in self.metrics}


def guided() -> Any:
    inputs = keras.Input((8,))
    model = Guided(inputs, layers.Dense(1)(inputs))
    model.compile(optimizers.SGD(0.1), loss="mse", metrics=["mae", metrics.RootMeanSquaredError(name="root")])
    return model


class Summing(keras.Model):  # type: ignore[misc]
    """Has its losses in a dict."""

    def train_step(self, data: Any) -> Any:
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.criteria["y"](ops.cast(ops.reshape(y, (-1, 1)), "float32"), self(x, training=True))
        slopes = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(slopes, self.trainable_variables)
        return {"value": loss}


def summing() -> Any:
    inputs = keras.Input((8,))
    model = Summing(inputs, layers.Dense(1)(inputs))
    model.criteria = {"y": keras.losses.MeanSquaredError(reduction="sum")}
    model.compile(optimizers.SGD(0.001), loss="mse")
    return model


def mean_of_batch(y: Any, prediction: Any) -> Any:
    """A loss that is one number, which Keras does not divide by the number of replicas."""
    return ops.mean(ops.square(ops.cast(ops.reshape(y, (-1, 1)), "float32") - prediction))


class Unscaled(keras.Model):  # type: ignore[misc]
    """A compute_loss as in Keras' documentation."""

    def compute_loss(
        self, x: Any = None, y: Any = None, y_pred: Any = None, sample_weight: Any = None, training: bool = True
    ) -> Any:
        return mean_of_batch(y, y_pred) + ops.sum(self.losses)


def own_loss() -> Any:
    inputs = keras.Input((8,))
    model = Unscaled(inputs, layers.Dense(1, kernel_regularizer="l2")(inputs))
    model.compile(optimizers.SGD(0.1))
    return model


class Autoencoder(keras.Model):  # type: ignore[misc]
    """A VAE as in Keras' documentation, without its noise: unscaled losses, trackers, no call()."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = keras.Sequential([keras.Input((8,)), layers.Dense(4)])
        self.decoder = keras.Sequential([keras.Input((4,)), layers.Dense(8)])
        self.total = metrics.Mean(name="loss")
        self.kl = metrics.Mean(name="kl_loss")

    @property
    def metrics(self) -> list[Any]:
        return [self.total, self.kl]

    def train_step(self, data: Any) -> Any:
        data = data[0] if isinstance(data, tuple) else data
        with tf.GradientTape() as tape:
            mean = self.encoder(data)
            reconstruction = ops.mean(keras.losses.mean_squared_error(data, self.decoder(mean)))
            kl = ops.mean(ops.sum(ops.square(mean), axis=1))
            total = reconstruction + 0.1 * kl
        slopes = tape.gradient(total, self.trainable_weights)
        self.optimizer.apply_gradients(zip(slopes, self.trainable_weights, strict=True))
        self.total.update_state(total)
        self.kl.update_state(kl)
        return {"loss": self.total.result(), "kl_loss": self.kl.result(), "reconstruction": reconstruction}


def autoencoder(**more: Any) -> Any:
    model = Autoencoder()
    model.compile(optimizer=optimizers.SGD(0.1, momentum=0.9, clipnorm=0.5, **more))
    return model


class Adversarial(keras.Model):  # type: ignore[misc]
    """A GAN as in Keras' documentation: a compile of its own, two optimizers, a Loss object."""

    def __init__(self) -> None:
        super().__init__()
        self.judge = keras.Sequential([keras.Input((8,)), layers.Dense(8, activation="relu"), layers.Dense(1)])
        self.maker = keras.Sequential([keras.Input((8,)), layers.Dense(8)])
        self.d_tracker, self.g_tracker = metrics.Mean(name="d_loss"), metrics.Mean(name="g_loss")

    def compile(self, d_optimizer: Any, g_optimizer: Any, loss_fn: Any) -> None:
        super().compile()
        self.d_optimizer, self.g_optimizer, self.loss_fn = d_optimizer, g_optimizer, loss_fn

    @property
    def metrics(self) -> list[Any]:
        return [self.d_tracker, self.g_tracker]

    def train_step(self, data: Any) -> Any:
        real, _ = data
        count = ops.shape(real)[0]
        noise = ops.flip(real, axis=1)
        made = self.maker(noise)
        labels = ops.concatenate([ops.ones((count, 1)), ops.zeros((count, 1))], axis=0)
        with tf.GradientTape() as tape:
            d_loss = self.loss_fn(labels, self.judge(ops.concatenate([made, real], axis=0)))
        slopes = tape.gradient(d_loss, self.judge.trainable_weights)
        self.d_optimizer.apply(slopes, self.judge.trainable_weights)
        with tf.GradientTape() as tape:
            g_loss = self.loss_fn(ops.zeros((count, 1)), self.judge(self.maker(noise)))
        slopes = tape.gradient(g_loss, self.maker.trainable_weights)
        self.g_optimizer.apply_gradients(zip(slopes, self.maker.trainable_weights, strict=True))
        self.d_tracker.update_state(d_loss)
        self.g_tracker.update_state(g_loss)
        return {"d_loss": self.d_tracker.result(), "g_loss": self.g_tracker.result()}


def adversarial() -> Any:
    model = Adversarial()
    model.built = True
    loss = keras.losses.BinaryCrossentropy(from_logits=True)
    model.compile(optimizers.SGD(0.2, clipnorm=0.1), optimizers.Adam(0.01), loss)
    return model


class Distiller(keras.Model):  # type: ignore[misc]
    """A student, a frozen teacher, and an average of the student's weights that train_step keeps itself."""

    def __init__(self) -> None:
        super().__init__()
        self.student = keras.Sequential([keras.Input((8,)), layers.Dense(2)])
        self.teacher = keras.Sequential([keras.Input((8,)), layers.Dense(6, activation="tanh"), layers.Dense(2)])
        self.average = keras.Sequential([keras.Input((8,)), layers.Dense(2)])
        self.teacher.trainable = self.average.trainable = False

    def call(self, x: Any) -> Any:
        return self.student(x)

    def train_step(self, data: Any) -> Any:
        x, y = data
        soft = ops.softmax(self.teacher(x, training=False))
        with tf.GradientTape() as tape:
            prediction = self.student(x, training=True)
            loss = self.compute_loss(x, y, prediction) + 0.5 * keras.losses.KLDivergence()(
                soft, ops.softmax(prediction)
            )
        slopes = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply(slopes, self.trainable_variables)
        for kept, now in zip(self.average.variables, self.student.variables, strict=True):
            kept.assign(0.9 * kept + 0.1 * now)
        return {**self.compute_metrics(x, y, prediction), "loss": loss}


def distiller() -> Any:
    model = Distiller()
    model.build((None, 8))
    model.compile(
        optimizers.SGD(0.1), loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True), metrics=["accuracy"]
    )
    return model


class Siamese(keras.Model):  # type: ignore[misc]
    """A triplet loss as in Keras' examples: data are no x and y, and compile is given no metrics."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = keras.Sequential([keras.Input((8,)), layers.Dense(8, activation="tanh"), layers.Dense(3)])
        self.tracker = metrics.Mean(name="loss")

    @property
    def metrics(self) -> list[Any]:
        return [self.tracker]

    def call(self, triplet: Any) -> Any:
        anchor, near, far = (self.embed(each) for each in triplet)
        return ops.sum(ops.square(anchor - near), -1), ops.sum(ops.square(anchor - far), -1)

    def train_step(self, data: Any) -> Any:
        with tf.GradientTape() as tape:
            near, far = self(data)
            loss = ops.mean(ops.maximum(near - far + 0.5, 0.0))
        slopes = tape.gradient(loss, self.embed.trainable_weights)
        self.optimizer.apply_gradients(zip(slopes, self.embed.trainable_weights, strict=True))
        self.tracker.update_state(loss)
        return {"loss": self.tracker.result()}


def siamese() -> Any:
    model = Siamese()
    model.compile(optimizers.SGD(0.1), weighted_metrics=[])
    return model


NEAR = np.abs(np.arange(8)[:, None] - np.arange(8)).ravel()
"""Relative positions: constants with duplicates, and as many as four batches of 16."""
LOOK_UPS: list[Callable[[Any, Any], Any]] = [
    # Rows of all examples together: positions, relative positions, and a segment of the length of a batch.
    lambda table, x: table(ops.arange(8)[None]),
    lambda table, x: ops.tensordot(ops.arange(8.0), ops.reshape(table(NEAR), (8, 8, 4)), 1),
    lambda table, x: table(ops.zeros((1, 16), "int32"))[:, :8],
    # One or more for each example: a first token, positions, segments, a class, and two views of the batch.
    lambda table, x: table(ops.zeros((ops.shape(x)[0], 1), "int32")),
    lambda table, x: table(ops.broadcast_to(ops.arange(8), (ops.shape(x)[0], 8))),
    lambda table, x: table(ops.zeros_like(x[..., 0], "int32")),
    lambda table, x: table(ops.zeros_like(x[:, 0, 0], "int32"))[:, None],
    lambda table, x: ops.mean(
        ops.reshape(table(ops.zeros_like(ops.concatenate([x, x])[..., 0], "int32")), (2, -1, 8, 4)), 0
    ),
]
"""Rows of an Embedding that do not depend on the data."""


class Scale(layers.Layer):  # type: ignore[misc]
    def __init__(self, look_up: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.look_up, self.table = look_up, layers.Embedding(8, 4, embeddings_initializer="ones")
        self.table.build(None)

    def call(self, x: Any) -> Any:
        return x * self.look_up(self.table, x)


def embeddings() -> Any:
    """Of tokens, and of rows that are the same in each batch."""
    inputs = keras.Input((8,))
    tokens = layers.Embedding(2, 4)(ops.cast(inputs > 0, "int32"))
    scaled = layers.Average()([Scale(look_up)(tokens) for look_up in LOOK_UPS])
    model = keras.Model(inputs, layers.Dense(1)(layers.Flatten()(scaled)))
    model.compile(optimizers.Adam(0.01, clipnorm=0.1), loss=keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def two_inputs(by_name: bool) -> Any:
    left, right = keras.Input((8,), name="left"), keras.Input((4,), name="right")
    joined = keras.layers.Concatenate()([left, right])
    outputs = {name: keras.layers.Dense(units, name=name)(joined) for name, units in (("sign", 1), ("sum", 2))}
    losses = {"sign": keras.losses.BinaryCrossentropy(from_logits=True), "sum": "mse"}
    weights = {"sign": 0.3, "sum": 2.0}
    model = keras.Model(
        {"left": left, "right": right} if by_name else [left, right], outputs if by_name else list(outputs.values())
    )
    model.compile(
        optimizers.Adam(0.01),
        loss=losses if by_name else list(losses.values()),
        loss_weights=weights if by_name else list(weights.values()),
        weighted_metrics={"sign": "accuracy", "sum": "mae"} if by_name else ["accuracy", "mae"],
    )
    return model


class Padded(layers.Layer):  # type: ignore[misc]
    def call(self, words: Any) -> Any:
        return words.to_tensor() if isinstance(words, tf.RaggedTensor) else words


def embedded() -> Any:
    """The longest sentence of each replica's batch is another, and so the number of rows in its gradient."""
    words = keras.Input((None,), dtype="int32", ragged=True)
    rows = layers.Embedding(10, 4, mask_zero=True)(Padded()(words))
    model = keras.Model(words, layers.Dense(3)(layers.GlobalAveragePooling1D()(rows)))
    model.compile(optimizers.Adam(0.01), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def rows_in_bfloat16() -> Any:
    words = keras.Input((3,), dtype="int32")
    rows = layers.Embedding(10, 4, dtype="bfloat16")(words)
    model = keras.Model(words, layers.Dense(3)(layers.Flatten()(rows)))
    model.compile(optimizers.SGD(0.5), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def text_and_ragged() -> Any:
    words, numbers = keras.Input((), dtype="string"), keras.Input((None,), ragged=True)
    vectorize = keras.layers.TextVectorization(vocabulary=["0", "1", "2"], output_mode="multi_hot")
    sums = keras.layers.Lambda(lambda each: tf.reduce_sum(each, 1)[:, None], output_shape=(1,))(numbers)
    joined = keras.layers.Concatenate()([vectorize(words), sums])
    model = keras.Model([words, numbers], keras.layers.Dense(1)(joined))
    model.compile(optimizers.SGD(0.01), loss="mse")
    return model


SUMS = np.stack([X.sum(1), X[:, 0]], 1)
TEXT = np.arange(640).astype(str)
WORDS = [[1 + n % 9] * (1 + n * 37 % 101 % 23) for n in range(640)]
RAGGED = [[float(n % 7)] * (n % 3) for n in range(640)]
SCHEDULE = {"decay_steps": 15, "warmup_target": 0.02, "warmup_steps": 5}
CASES: dict[str, tuple[Callable[[], Any], Any]] = {
    "schedule and weight decay": (
        lambda: plain(optimizers.AdamW(optimizers.schedules.CosineDecay(0.01, **SCHEDULE), weight_decay=0.01)),
        (X, Y),
    ),
    "clipnorm": (lambda: plain(optimizers.SGD(0.5, clipnorm=0.1)), (X, Y)),
    "global_clipnorm": (lambda: plain(optimizers.SGD(0.5, momentum=0.9, global_clipnorm=0.1)), (X, Y)),
    "accumulation": (lambda: plain(optimizers.Adam(0.01, gradient_accumulation_steps=3)), (X, Y)),
    "averages": (
        lambda: plain(optimizers.SGD(0.1, use_ema=True, ema_momentum=0.9, ema_overwrite_frequency=20)),
        (X, Y),
    ),
    "weights": (
        lambda: plain(metrics=[metrics.AUC(from_logits=True, name="auc")], weighted_metrics=["mae", "accuracy"]),
        (X, Y, WEIGHTS),
    ),
    "a sum": (lambda: plain(optimizers.SGD(0.01), loss=keras.losses.MeanSquaredError(reduction="sum")), (X, Y)),
    "one number": (lambda: plain(optimizers.SGD(0.1), loss=mean_of_batch), (X, Y)),
    "own metrics": (lambda: plain(metrics=["accuracy", Largest(), Counted(), Scaled(), NeverReset("never")]), (X, Y)),
    "outputs by name": (two_outputs, (X, SIGNED)),
    "a list of outputs": (list_of_outputs, (X, (X[:, :1], X[:, :2]))),
    "inputs, outputs and weights by name": (
        lambda: two_inputs(True),
        ({"left": X, "right": X[:, :4]}, {"sign": Y, "sum": SUMS}, {"sign": WEIGHTS, "sum": WEIGHTS**2}),
    ),
    "tuples of inputs, outputs and weights": (
        lambda: two_inputs(False),
        ((X, X[:, :4]), (Y, SUMS), (WEIGHTS, WEIGHTS**2)),
    ),
    "text and a ragged tensor": (text_and_ragged, lambda: ((TEXT, tf.ragged.constant(RAGGED)), Y)),
    "sentences of any length": (embedded, lambda: (tf.ragged.constant(WORDS, dtype=tf.int32), Y)),
    "rows in bfloat16": (rows_in_bfloat16, (np.arange(1920).reshape(640, 3) % 10, Y)),
    "own compute_loss": (own_loss, (X, Y)),
    "metrics in a loop": (guided, (X, Y)),
    "autoencoder": (autoencoder, (X, Y)),
    "x alone": (lambda: autoencoder(gradient_accumulation_steps=3), X),
    "losses of layers alone": (losses_of_layers, X),
    "a sum in a dict": (summing, (X, Y)),
    "adversarial": (adversarial, (X, Y)),
    "synchronized BatchNormalization": (synchronized, (X, Y)),
    "distillation": (distiller, (X, Y)),
    "embeddings": (embeddings, (X, Y)),
    "triplets": (siamese, (X, X + 0.1, X[::-1])),
}
FLOAT16 = ("float16",)
"""Cases under Keras' policy mixed_float16."""
CASES["float16"] = (half, (X, Y))
