"""Paths in a model_dir.

result.json          results of the job, once it has succeeded
state.json           the chief's state between restarts, until the job has succeeded
lease.json           which chief may write: see lease.py
history.json         figures over time: see history.py
journal.jsonl        what happened: see journal.py
spec.json            the spec of the last job that began here
checkpoints/         see checkpoint.py
files/               indexes of the files of records that the workload names
logs/                TensorFlow's output, one file per task
tensorboard/         event files
metrics.jsonl        the learning curve; also evaluation.jsonl and validation.jsonl
reported.jsonl       the same of a program: what it has reported with a step
mlflow.json          by which `trainer track` finds the job's run at MLflow
export/              the trained model
best/                the best checkpoint, as in a model_dir of its own
csv_lengths.json     lengths of the files of CSVLogger(append=True) when training began
init_from.json       which variables began with the values of init_from
"""

from __future__ import annotations

from pathlib import Path

RESULT = "result.json"
STATE = "state.json"
_LOCK = ".lock"
_LEASE = "lease.json"
HISTORY = "history.json"
JOURNAL = "journal.jsonl"


def result(model_dir: str | Path) -> Path:
    return Path(model_dir) / RESULT


def state(model_dir: str | Path) -> Path:
    return Path(model_dir) / STATE


def lock(model_dir: str | Path) -> Path:
    return Path(model_dir) / _LOCK


def lease(model_dir: str | Path) -> Path:
    return Path(model_dir) / _LEASE


def history(model_dir: str | Path) -> Path:
    return Path(model_dir) / HISTORY


def journal(model_dir: str | Path, number: int = 0) -> Path:
    """The journal; with number 1 the file before it."""
    return Path(model_dir) / (f"journal.{number}.jsonl" if number else JOURNAL)


def spec(model_dir: str | Path) -> Path:
    return Path(model_dir) / "spec.json"


def metrics(model_dir: str | Path) -> Path:
    return Path(model_dir) / "metrics.jsonl"


def evaluation(model_dir: str | Path) -> Path:
    return Path(model_dir) / "evaluation.jsonl"


def checkpoints(model_dir: str | Path) -> Path:
    return Path(model_dir) / "checkpoints"


def files(model_dir: str | Path) -> Path:
    return Path(model_dir) / "files"


def logs(model_dir: str | Path) -> Path:
    return Path(model_dir) / "logs"


def tensorboard(model_dir: str | Path) -> Path:
    return Path(model_dir) / "tensorboard"


def curve(model_dir: str | Path, name: str) -> Path:
    """The file of a learning curve: of `metrics`, `evaluation`, `validation` or `reported`."""
    return Path(model_dir) / f"{name}.jsonl"


def reported(model_dir: str | Path) -> Path:
    return curve(model_dir, "reported")


def mlflow(model_dir: str | Path) -> Path:
    return Path(model_dir) / "mlflow.json"


def export(model_dir: str | Path) -> Path:
    return Path(model_dir) / "export"


def exported_model(model_dir: str | Path) -> Path:
    return export(model_dir) / "model.keras"


def best(model_dir: str | Path) -> Path:
    return Path(model_dir) / "best"


def validation(model_dir: str | Path) -> Path:
    return curve(model_dir, "validation")


def init_report(model_dir: str | Path) -> Path:
    return Path(model_dir) / "init_from.json"


def csv_lengths(model_dir: str | Path) -> Path:
    return Path(model_dir) / "csv_lengths.json"
