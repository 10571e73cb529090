"""A compiled model with callbacks of Keras and one of its own, which write into model_dir."""

import json
import time
from pathlib import Path
from typing import Any

import keras

DATASET = "digits"
SETTINGS = {"patience": 2, "compiled": True}


def model() -> keras.Model:
    network = keras.Sequential(
        [
            keras.Input((8, 8), dtype="uint8"),
            keras.layers.Rescaling(1 / 16),
            keras.layers.Flatten(),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.Dense(10),
        ]
    )
    if SETTINGS["compiled"]:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        network.compile(keras.optimizers.Adam(0.01), loss=loss, metrics=["accuracy"])
    return network


class Batches(keras.callbacks.Callback):  # type: ignore[misc]
    """Lowers the rate at the 25th batch, and leaves time to kill a task."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.seen = str(folder), 0

    def get_state(self) -> int:
        return self.seen

    def set_state(self, state: int) -> None:
        self.seen = state

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.seen += 1
        time.sleep(0.02)
        if self.seen == 25:
            self.model.optimizer.learning_rate = 0.005

    def on_train_end(self, logs: Any = None) -> None:
        Path(self.folder, "batches.json").write_text(json.dumps({"seen": self.seen, **logs}))


def callbacks(model_dir: str) -> list[Any]:
    folder = Path(model_dir) / "callbacks"
    folder.mkdir(parents=True, exist_ok=True)
    kinds = keras.callbacks
    return [
        kinds.ReduceLROnPlateau("val_loss", factor=0.3, patience=1, min_delta=0.1),
        kinds.CSVLogger(folder / "log.csv"),
        kinds.ModelCheckpoint(folder / "best.keras", "val_accuracy", save_best_only=True),
        kinds.ModelCheckpoint(folder / "{epoch:02d}-{batch:02d}.weights.h5", save_weights_only=True, save_freq=33),
        kinds.EarlyStopping("val_loss", patience=SETTINGS["patience"], min_delta=0.05, restore_best_weights=True),
        kinds.TensorBoard(folder / "board"),
        Batches(folder),
    ]
