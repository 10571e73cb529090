"""What counts as progress of a program that does not report."""

import os
from pathlib import Path

from trainer.model_dir import layout
from trainer.model_dir.fingerprint import ENDS, fingerprint


def test_contents_count_not_times_logs_or_our_own_files(tmp_path: Path) -> None:
    (tmp_path / "backup").mkdir()
    large = tmp_path / "backup" / "weights.h5"
    large.write_bytes(bytes(10 * ENDS))
    before = fingerprint(str(tmp_path))
    large.write_bytes(bytes(10 * ENDS))
    os.utime(large, (1, 1))
    for name in ("state.json", "result.json", ".lock", "lease.json", "history.json", "mlflow.json"):
        (layout.make_own(tmp_path) / name).write_text("x")
        (layout.own(tmp_path) / f".tmp-{name}-0123").write_text("x")
    layout.logs(tmp_path).mkdir(parents=True)
    (layout.logs(tmp_path) / "chief-0.txt").write_text("x")
    (tmp_path / "train.log").write_text("x")
    (tmp_path / "events.out.tfevents.1.host").write_text("x")
    assert fingerprint(str(tmp_path)) == before
    for change in (
        lambda: large.write_bytes(bytes(10 * ENDS - 1) + b"x"),
        lambda: large.write_bytes(b"x" + bytes(10 * ENDS - 1)),
        lambda: large.write_bytes(bytes(11 * ENDS)),
        lambda: large.rename(tmp_path / "backup" / "weights-2.h5"),
        lambda: (tmp_path / "checkpoint").write_text("step 3"),
        lambda: (tmp_path / "checkpoint").write_text("step 4"),
        lambda: (tmp_path / "history.json").write_text("of the program"),
    ):
        change()
        assert fingerprint(str(tmp_path)) != before
        before = fingerprint(str(tmp_path))


def test_our_own_files_do_not_count_in_a_model_dir_of_version_0_2_either(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / "lease.json").write_text('{"number": 1, "incarnation": "x"}')
    before = fingerprint(str(tmp_path))
    for name in ("state.json", "result.json", "history.json"):
        (tmp_path / name).write_text("x")
    layout.logs(tmp_path).mkdir()
    (layout.logs(tmp_path) / "chief-0.txt").write_text("x")
    assert fingerprint(str(tmp_path)) == before


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert fingerprint(str(tmp_path / "none")) == fingerprint(str(tmp_path))


def test_a_pipe_among_the_files_is_not_waited_for(tmp_path: Path) -> None:
    """Opening it would block the chief's supervisor, until a writer opens it too."""
    os.mkfifo(tmp_path / "pipe")
    assert fingerprint(str(tmp_path)) == fingerprint(str(tmp_path / "none"))
