"""Exports the trained model, atomically."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from trainer.model_dir import layout
from trainer.model_dir.files import read_json
from trainer.training.task import TrainingTask
from trainer.workloads.estimator import Exporter
from trainer.workloads.types import Model


def export(model: Model, model_dir: str) -> None:
    """Writes export/model.keras and export/saved_model."""

    def write(folder: Path) -> None:
        model.save(folder / "model.keras")
        with contextlib.redirect_stdout(io.StringIO()):  # tf_keras' export has no option to be quiet
            model.export(str(folder / "saved_model"))

    _replace(layout.export(model_dir), write)


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


def _replace(target: Path, write: Callable[[Path], None]) -> None:
    temporary = target.with_name(f".tmp-{target.name}")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    write(temporary)
    old = target.with_name(f".old-{target.name}")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    temporary.rename(target)
    shutil.rmtree(old, ignore_errors=True)
