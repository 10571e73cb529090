"""Exports the trained model, atomically."""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from trainer.model_dir import layout, lease
from trainer.model_dir.files import OWN, read_json
from trainer.training.private import keras_private
from trainer.training.task import TrainingTask
from trainer.workloads.estimator import Exporter
from trainer.workloads.types import Model, Tensor

NAMES = ("model.keras", "saved_model")
BEST = "best.keras"
WEIGHTS = "model.weights.h5"
"""Written if nothing else could be, as of a GAN in Keras' guides: it has no get_config(), and no call() either."""


def export(model: Model, model_dir: str, best: Model | None = None, x: Tensor = None) -> dict[str, Exception]:
    """Writes export/model.keras, export/saved_model and, if there is a best model, export/best.keras.

    Args:
        x: tf.TensorSpec of each part of x in the data, whose types the SavedModel takes; None: those of its Input.

    Returns:
        By name why one of them could not be written, as for a layer without get_config(). The other one is there, or
        else export/model.weights.h5.

    Raises:
        Exception: why model.keras could not be written, if the weights could not be either.
    """
    failed: dict[str, Exception] = {}
    saves: dict[str, Callable[[str], object]] = {
        "model.keras": model.save,
        "saved_model": functools.partial(keras_private.export, model, x=x),
        **({BEST: best.save} if best else {}),
    }

    def write(folder: Path) -> None:
        for name, save in saves.items():
            try:
                save(str(folder / name))
            except OSError:
                raise
            except Exception as error:
                failed[name] = error
        for name in failed:
            _remove(folder / name)
        if len(failed) == len(saves):
            try:
                model.save_weights(str(folder / WEIGHTS))
            except OSError:
                raise
            except Exception:
                raise failed[NAMES[0]] from None

    _replace(layout.export(model_dir), write)
    return failed


def export_best(model: Model, model_dir: str) -> None:
    """Adds export/best.keras to the exports of a finished job."""
    target = layout.export(model_dir) / BEST
    temporary = target.with_name(f".tmp-{BEST}")
    model.save(str(temporary))
    temporary.replace(target)


def run_exporters(job: TrainingTask, model: Model, figures: dict[str, float], last: bool) -> None:
    """Runs the exporters of the workload's EvalSpec, which write exporters/NAME with the model's metrics.

    If the last checkpoint cannot be scored there are no metrics: exporters that compare one are skipped.
    """
    for exporter in job.workload.eval_spec.exporters if job.workload.eval_spec else ():
        folder = Path(job.spec.directory) / "exporters" / exporter.name
        best = {key: value for key, value in read_json(folder / "figures.json").items() if isinstance(value, float)}
        if _wanted(exporter, figures, best or None, last):

            def write(temporary: Path, exporter: Exporter = exporter) -> None:
                exporter.export(model, temporary)
                (temporary / "figures.json").write_text(json.dumps(figures) + "\n")

            _replace(folder, write)


def _wanted(exporter: Exporter, figures: dict[str, float], best: dict[str, float] | None, last: bool) -> bool:
    try:
        return bool(exporter.wanted(figures, best, last))
    except KeyError:
        if figures:
            raise
        return False


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True) if not path.is_dir() else shutil.rmtree(path)


def _replace(target: Path, write: Callable[[Path], None]) -> None:
    lease.require_own()
    for left in target.parent.glob(f".tmp-{target.name}*"):  # by a task that was killed
        shutil.rmtree(left, ignore_errors=True)
    temporary = target.with_name(f".tmp-{target.name}-{OWN}")
    temporary.mkdir(parents=True)
    write(temporary)
    lease.require_own()
    old = target.with_name(f".old-{target.name}")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    temporary.rename(target)
    shutil.rmtree(old, ignore_errors=True)
