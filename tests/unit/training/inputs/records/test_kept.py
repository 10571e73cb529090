"""The index that is kept in model_dir: it is made once, and again where files or the index itself were changed."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.inputs.records.written import damage_byte, numbers, open_all, record, tfrecords
from trainer.job.errors import UserError
from trainer.model_dir import layout
from trainer.training.inputs.records import damage, index, kept, scan

EDITS: list[Any] = [
    [],
    {"files": None},
    {"files": [{}]},
    {"files": []},
    {"files": [{"stat": 3, "blocks": 1, "left_out": []}]},
    {"files": [{"stat": [1, 2], "blocks": "x", "left_out": []}]},
    {"files": [{"stat": [1, 2], "blocks": 99, "left_out": []}]},
    {"files": [{"stat": [1, 2], "blocks": 1, "left_out": [1]}]},
]


@pytest.mark.parametrize("edit", EDITS, ids=range(len(EDITS)))
def test_an_index_that_was_edited_is_made_again(tmp_path: Path, edit: Any) -> None:
    tfrecords(tmp_path)
    names = [str(path) for path in sorted(tmp_path.glob("*.tfrecord"))]
    made = kept.index(names, "tfrecord", "train", str(tmp_path), 0)
    (path,) = layout.files(tmp_path).glob("*.npz")
    with np.load(path) as archive:
        arrays = dict(archive)
    meta = json.loads(str(arrays["meta"]))
    assert (before := kept._read(path)) is not None
    assert before.sha256 == made.sha256
    np.savez(path, **{**arrays, "meta": json.dumps({**meta, **edit} if edit else edit)})
    assert kept._read(path) is None
    assert kept.index(names, "tfrecord", "train", str(tmp_path), 0).sha256 == made.sha256


def test_an_index_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tfrecords(tmp_path)
    first = open_all(tmp_path)
    monkeypatch.setattr(scan, "scan", None)  # nothing is scanned again
    assert numbers(open_all(tmp_path)) == numbers(first)


def test_an_index_that_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_KEEP_SECONDS", 0.0)
    monkeypatch.setattr(index, "_THREADS", 1)
    tfrecords(tmp_path, [10, 20, 30])
    whole = (tmp_path / "t-2.tfrecord").read_bytes()
    (tmp_path / "t-2.tfrecord").write_bytes(b"not yet a file of records")
    reports: list[tuple[int, str | None]] = []
    with pytest.raises(UserError, match=r"t-2.tfrecord: is not a TFRecord file"):
        open_all(tmp_path, report=lambda *each: reports.append(each))
    size = sum((tmp_path / f"t-{each}.tfrecord").stat().st_size for each in range(2))
    assert reports[-1][0] > size // 2
    assert reports[-1][1] == f"train: 2 of 3 files indexed, {reports[-1][0] / 1e9:.2f} GB read"
    (tmp_path / "t-2.tfrecord").write_bytes(whole)
    scanned: list[Any] = []
    original = scan.scan
    monkeypatch.setattr(scan, "scan", lambda *given: scanned.append(given) or original(*given))  # type: ignore[func-returns-value]
    assert open_all(tmp_path).count() == 60
    assert len(scanned) == 1
    assert sorted(each.name for each in layout.files(tmp_path / "run").iterdir()) == [".train.npz.lock", "train.npz"]


def test_a_task_that_waits_for_the_index_of_another_shows_that_it_is_made(tmp_path: Path) -> None:
    path, reported = layout.files(tmp_path) / "train.npz", threading.Event()
    ended = threading.Event()

    def wait() -> None:
        with kept._alone(path, lambda *_: reported.set()):
            ended.set()

    with kept._alone(path, lambda *_: None) as touch:
        other = threading.Thread(target=wait)
        other.start()
        while not reported.wait(0.01):
            touch()
        assert not ended.is_set()
    other.join(30)
    assert ended.is_set()


def test_a_changed_file_is_indexed_again(tmp_path: Path) -> None:
    tfrecords(tmp_path, [10, 20])
    assert open_all(tmp_path).count() == 30
    tfrecords(tmp_path, [10, 25])
    assert open_all(tmp_path).count() == 35


def test_files_that_change_between_resumes_are_refused_by_name(tmp_path: Path) -> None:
    tfrecords(tmp_path, [10, 20, 5])
    open_all(tmp_path)
    open_all(tmp_path, split="test")
    (tmp_path / "run/checkpoints/step-00000005").mkdir(parents=True)
    os.utime(tmp_path / "t-1.tfrecord")
    assert open_all(tmp_path).count() == 35, "only its time has changed"
    damage_byte(tmp_path / "t-1.tfrecord", 12 + len(record(10)))  # the checksum of the first record's data
    (tmp_path / "t-2.tfrecord").rename(tmp_path / "t-3.tfrecord")
    open_all(tmp_path, split="test")
    with pytest.raises(UserError) as caught:
        open_all(tmp_path)
    assert str(caught.value) == (
        "trainer.files: t-2.tfrecord is gone; t-3.tfrecord is new; t-1.tfrecord has changed, and the checkpoints in "
        f"{tmp_path}/run were trained on the data as it was; restore the files, or choose another model_dir"
    )


def test_a_file_that_changes_while_a_job_runs_is_named(tmp_path: Path) -> None:
    tfrecords(tmp_path, [10, 20])
    given = open_all(tmp_path)
    given.require_unchanged()
    os.truncate(tmp_path / "t-1.tfrecord", 100)
    with pytest.raises(UserError, match=f"^{tmp_path}/t-1.tfrecord: changed while the job ran"):
        given.require_unchanged()
    text = damage.named(tf.errors.DataLossError(None, None, "truncated record at 77"))
    assert text is not None
    assert text.startswith(f"{tmp_path}/t-1.tfrecord: changed while the job ran")


def test_a_digest_is_of_contents_not_of_folders(tmp_path: Path) -> None:
    digests = []
    for name, counts, first in [("a", [9, 9], 1), ("b", [9, 9], 1), ("c", [9, 8], 1), ("d", [9, 9], 2)]:
        folder = tmp_path / name
        folder.mkdir()
        tfrecords(folder, counts)
        if first == 2:
            with tf.io.TFRecordWriter(str(folder / "t-0.tfrecord")) as file:
                for each in range(9):
                    file.write(record(each)[::-1])
        digests.append(open_all(folder).index.sha256)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
