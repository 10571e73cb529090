"""The part of a job spec that concerns training alone: batches, optimizer, first weights, and the best checkpoint."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from trainer.job.data import DataName
from trainer.job.fields import Count, Positive, Strict, Text, short


def _numbers_from_text(value: object) -> object:
    # The keys of a JSON object are text.
    if not isinstance(value, dict):
        return value
    return {int(key) if isinstance(key, str) and key.isdecimal() else key: rate for key, rate in value.items()}


RateTable = Annotated[dict[Count, Positive], Field(min_length=1), BeforeValidator(_numbers_from_text)]


class Train(Strict):
    """How to train. Give steps or epochs, and batch_size or global_batch_size, not both."""

    steps: Count | None = None
    """Optimizer steps of the whole job. Default: 1000, unless epochs is given."""
    epochs: Count | None = None
    """Passes over the training examples; converted to steps when the data is loaded."""
    steps_per_epoch: Count | None = None
    """Steps of an epoch, for train.epochs and for callbacks(). Default: one pass over the training examples."""
    batch_size: Count | None = None
    """Examples per replica and step. Default: 64, unless global_batch_size is given."""
    global_batch_size: Count | None = None
    """Examples per step over all replicas in sync; must be divisible by their number."""
    validation_split: float = Field(default=0, ge=0, lt=1)
    """Share of the training arrays, their last part, that is not trained on, but validated with."""
    optimizer: Literal["adam", "sgd", "rmsprop", "adagrad"] = "adam"
    """The optimizer, with Keras' default settings except for the learning rate."""
    learning_rate: Positive = 1e-3
    """The learning rate before scaling."""
    learning_rates: RateTable | None = None
    """Replaces learning_rate by a table from global batch size to rate, as in {64: 0.001, 128: 0.0015}."""
    learning_rate_scaling: Literal["none", "linear", "sqrt"] = "none"
    """Multiplies the rate by the number of replicas in sync, or by its square root."""
    seed: int = Field(default=0, ge=0, lt=2**31)
    """Seed of the initial weights and of the order of the examples."""
    max_bad_records: int = Field(default=0, ge=0, lt=2**31)
    """Damaged records in the TFRecord files of trainer.files that are left out; more end the job. Above 0 all files are
    read once to find them."""
    deterministic: bool = False
    """TensorFlow's op determinism, for GPUs: repeatable bit for bit, but slower. On CPUs a seed suffices."""
    mixed_precision: Literal["none", "bfloat16", "float16"] = "none"
    """Keras' mixed precision. float16 scales the loss, and skips batches whose gradients overflow."""
    steps_per_call: int = Field(default=10, ge=1, le=10_000)
    """Maximum number of steps in one graph call; also the unit of work that is lost with a ps-worker."""
    checkpoint_steps: Count = 500
    """Steps between checkpoints."""
    keep_checkpoints: Count = 3
    """Number of checkpoints to keep; older ones are deleted."""
    log_steps: Count = 100
    """Steps between log lines."""


_SMALLER, _LARGER = ("loss", "error", "mse", "mae", "perplexity"), ("acc", "auc", "precision", "recall", "f1", "iou")


class KeepBest(Strict):
    """The figure by which checkpoints are compared."""

    metric: Text
    """val_loss, or another figure of the validation data, after `val_`; with tasks.evaluator also a figure of the test
    split, as in evaluation.jsonl."""
    mode: Literal["auto", "min", "max"] = "auto"
    """Whether less or more is better. auto: known for names with loss, error, mse, mae, perplexity, acc, auc,
    precision, recall, f1 and iou."""

    @property
    def direction(self) -> Literal["min", "max"] | None:
        """None if the name does not show it."""
        if self.mode != "auto":
            return self.mode
        if any(word in self.metric.lower() for word in _SMALLER):
            return "min"
        return "max" if any(word in self.metric.lower() for word in _LARGER) else None

    def better(self, figure: float, other: float) -> bool:
        return figure > other if self.direction == "max" else figure < other

    @property
    def of_validation(self) -> bool:
        """Whether the chief computes it, and not the evaluator."""
        return self.metric.startswith("val_")


def _init_from_path(value: object) -> object:
    return {"path": value} if isinstance(value, str) else value


class InitFrom(Strict):
    """A model that was trained before. A plain path is short for `{path: ...}`."""

    path: Text
    """A .keras or .weights.h5 file, the folder of a SavedModel, a checkpoint of trainer, or a model_dir. Relative to
    the spec, or to the folder of `data`."""
    data: DataName | None = None
    """The name of the data that hold it, as containers need."""


Begin = Annotated[InitFrom, short(_init_from_path, InitFrom | Text)]
