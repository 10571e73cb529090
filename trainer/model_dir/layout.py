"""Paths in a model_dir.

checkpoints/         see checkpoint.py
best/                the best checkpoint, as in a model_dir of its own
export/              the trained model
metrics.jsonl        the learning curve; also evaluation.jsonl and validation.jsonl
tensorboard/         event files
.trainer/            what trainer keeps for itself, so that a program's files of the same names are its own:
    result.json          results of the job, once it has succeeded
    state.json           the chief's state between restarts, until the job has succeeded
    lease.json           which chief may write: see lease.py
    history.json         figures over time: see history.py
    journal.jsonl        what happened: see journal.py
    spec.json            the spec of the last job that began here
    files/               indexes of the files of records that the workload names
    logs/                TensorFlow's output, one file per task
    reported.jsonl       the learning curve of a program: what it has reported with a step
    mlflow.json          by which `trainer track` finds the job's run at MLflow
    csv_lengths.json     lengths of the files of CSVLogger(append=True) when training began
    init_from.json       which variables began with the values of init_from
"""

from __future__ import annotations

from pathlib import Path

OWN = ".trainer"
RESULT = "result.json"
STATE = "state.json"
LOCK = ".lock"
_LEASE = "lease.json"
HISTORY = "history.json"
JOURNAL = "journal.jsonl"
REPORTED = "reported"
_MARKS = {
    _LEASE: (b'"number"', b'"incarnation"'),
    STATE: (b'"generation"', b'"control_port"'),
    RESULT: (b'"status"', b'"job"', b'"strategy"'),
}
_MARK_BYTES = 1000
"""By what in their first bytes trainer's own files are known. A chief of version 0.2.0 had no lease."""


def own(model_dir: str | Path) -> Path:
    """The folder of trainer's own files: the model_dir itself if version 0.2, or a build before 0.3, has begun it."""
    whole, folder = Path(model_dir), Path(model_dir) / OWN
    try:
        begun = not folder.is_dir() and (whole / LOCK).is_file() and any(_is_ours(whole / name) for name in _MARKS)
        return whole if begun else folder
    except OSError:  # it is not accessible
        return folder


def _is_ours(path: Path) -> bool:
    """Whether a file is trainer's: a user may have one of that name. It is not parsed: it may be half written just now.

    Raises:
        OSError: it cannot be read.
    """
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        begin = file.read(_MARK_BYTES)
    return all(mark in begin for mark in _MARKS[path.name])


def make_own(model_dir: str | Path) -> Path:
    """The same, which is there afterwards.

    Raises:
        OSError: it cannot be made.
    """
    folder = own(model_dir)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def result(model_dir: str | Path) -> Path:
    return own(model_dir) / RESULT


def state(model_dir: str | Path) -> Path:
    return own(model_dir) / STATE


def lock(model_dir: str | Path) -> Path:
    return own(model_dir) / LOCK


def lease(model_dir: str | Path) -> Path:
    return own(model_dir) / _LEASE


def history(model_dir: str | Path) -> Path:
    return own(model_dir) / HISTORY


def journal(model_dir: str | Path, number: int = 0) -> Path:
    """The journal; with number 1 the file before it."""
    return own(model_dir) / (f"journal.{number}.jsonl" if number else JOURNAL)


def spec(model_dir: str | Path) -> Path:
    return own(model_dir) / "spec.json"


def metrics(model_dir: str | Path) -> Path:
    return Path(model_dir) / "metrics.jsonl"


def evaluation(model_dir: str | Path) -> Path:
    return Path(model_dir) / "evaluation.jsonl"


def checkpoints(model_dir: str | Path) -> Path:
    return Path(model_dir) / "checkpoints"


def files(model_dir: str | Path) -> Path:
    return own(model_dir) / "files"


def logs(model_dir: str | Path) -> Path:
    return own(model_dir) / "logs"


def tensorboard(model_dir: str | Path) -> Path:
    return Path(model_dir) / "tensorboard"


def curve(model_dir: str | Path, name: str) -> Path:
    """The file of a learning curve: of `metrics`, `evaluation`, `validation` or `reported`."""
    return (own(model_dir) if name == REPORTED else Path(model_dir)) / f"{name}.jsonl"


def reported(model_dir: str | Path) -> Path:
    return curve(model_dir, REPORTED)


def mlflow(model_dir: str | Path) -> Path:
    return own(model_dir) / "mlflow.json"


def export(model_dir: str | Path) -> Path:
    return Path(model_dir) / "export"


def exported_model(model_dir: str | Path) -> Path:
    return export(model_dir) / "model.keras"


def best(model_dir: str | Path) -> Path:
    return Path(model_dir) / "best"


def validation(model_dir: str | Path) -> Path:
    return curve(model_dir, "validation")


def init_report(model_dir: str | Path) -> Path:
    return own(model_dir) / "init_from.json"


def csv_lengths(model_dir: str | Path) -> Path:
    return own(model_dir) / "csv_lengths.json"
