"""Keras' own compile and fit, under any strategy: an example of a workload for `api: keras_fit`.

tf.keras is Keras 3 where its fit works, and tf_keras (Keras 2) where it does not: under multi_worker_mirrored,
parameter_server and central_storage.
"""

import tensorflow as tf

DATASET = "digits"
SETTINGS = {"units": 64, "learning_rate": 1e-3, "steps_per_execution": 1}


def model():
    """Returns a compiled model; called within the strategy's scope."""
    layers = tf.keras.layers
    model = tf.keras.Sequential(
        [
            tf.keras.Input((8, 8), dtype="uint8"),
            layers.Rescaling(1 / 16),
            layers.Flatten(),
            layers.Dense(SETTINGS["units"], activation="relu"),
            layers.Dense(10),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(SETTINGS["learning_rate"]),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        steps_per_execution=SETTINGS["steps_per_execution"],
    )
    return model


def fit(model, run):
    """Trains the model. Optional; the default is the same call without the custom callback."""
    slower = tf.keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.95 if epoch else rate)
    model.fit(
        run.train,
        steps_per_epoch=run.steps_per_epoch,
        epochs=run.epochs,
        initial_epoch=run.initial_epoch,
        callbacks=run.callbacks(slower),
        verbose=0,
    )
