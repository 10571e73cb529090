"""Jobs that train on files of records: each record is counted by the model itself."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from tests.local.specs import mirrored, parameter_server
from tests.tools.harness import Job

COUNTED = str(Path(__file__).parent / "workloads/counted.py")
COUNTS = [300, 20, 480]
TOTAL = sum(COUNTS)


def write(folder: Path) -> None:
    first = 0
    for i, count in enumerate(COUNTS):
        with tf.io.TFRecordWriter(str(folder / f"t-{i}.tfrecord")) as file:
            for each in range(first, first + count):
                file.write(b"%d" % (each if each % 2 else -each))
        first += count


def spec(make: Any, folder: Path, global_batch: int, **more: Any) -> Any:
    settings = {"folder": str(folder), "records": TOTAL, "global_batch": global_batch, **more.pop("settings", {})}
    train = {"batch_size": 8, "optimizer": "sgd", "learning_rate": 1.0, "checkpoint_steps": 40, **more.pop("train", {})}
    return make(steps=None, workload=COUNTED, settings=settings, train=train, **more)


def counts(job: Job, step: int) -> Any:
    with np.load(job.model_dir / f"checkpoints/step-{step:08d}/variables.npz") as archive:
        return archive["model.000"][:, 0]


@pytest.mark.slow
def test_a_killed_and_resumed_job_reads_every_record_once_in_each_epoch(tmp_path: Path) -> None:
    write(tmp_path)
    with Job(tmp_path, spec(mirrored, tmp_path, 16, train={"epochs": 6})) as job:
        job.until_step(60)
        job.signal("worker:1")
        assert job.wait() == 0, job.output
    assert job.result()["steps"] == 300 == 6 * TOTAL // 16
    assert counts(job, 300).tolist() == [6.0] * TOTAL
    assert job.result()["generations"] == 2
    assert job.result()["bad_records"] == 0


@pytest.mark.slow
def test_ps_workers_read_different_records(tmp_path: Path) -> None:
    write(tmp_path)
    # A worker's own share is 50 steps: at most all of them.
    with Job(tmp_path, spec(parameter_server, tmp_path, 8, train={"steps": 48})) as job:
        assert job.wait() == 0, job.output
    found = counts(job, 48)
    assert found.sum() == 48 * 8
    assert set(found.tolist()) == {0.0, 1.0}


@pytest.mark.slow
@pytest.mark.parametrize("task", ["chief:0", "worker:1"])
def test_a_job_with_ps_workers_goes_on_after_a_kill(tmp_path: Path, task: str) -> None:
    write(tmp_path)
    with Job(tmp_path, spec(parameter_server, tmp_path, 8, train={"steps": 400})) as job:
        job.until_step(90)
        job.signal(task)
        assert job.wait() == 0, job.output
    found = counts(job, 400)
    assert found.sum() == 400 * 8
    assert (found > 0).all()


@pytest.mark.slow
def test_a_ps_worker_that_is_killed_goes_on_near_the_step_that_was_reached(tmp_path: Path) -> None:
    """With others it is less exact: they take its steps while it is away."""
    write(tmp_path)
    with Job(tmp_path, spec(parameter_server, tmp_path, 8, train={"steps": 320}), "tasks.worker=1") as job:
        job.until_step(90)
        job.signal("worker:0")
        assert job.wait() == 0, job.output
    found = counts(job, 320)
    assert found.sum() == 320 * 8
    assert found.max() - found.min() <= 1, np.unique(found, return_counts=True)


@pytest.mark.slow
@pytest.mark.parametrize(("make", "batch"), [(mirrored, 16), (parameter_server, 8)])
def test_a_damaged_record_ends_the_job_by_name_or_is_left_out(tmp_path: Path, make: Any, batch: int) -> None:
    write(tmp_path)
    path = tmp_path / "t-2.tfrecord"
    whole = bytearray(path.read_bytes())
    at = 16 * 200 + sum(len(b"%d" % (each if each % 2 else -each)) for each in range(320, 520))
    whole[at + 12] ^= 1
    path.write_bytes(whole)
    with Job(tmp_path, spec(make, tmp_path, batch, train={"steps": 200})) as job:
        assert job.wait() == 2, job.output
    assert f"{path}: record 200 at byte {at}: its data does not match the checksum; write the file again" in job.output
    with Job(tmp_path, spec(make, tmp_path, batch, train={"steps": 200}), "train.max_bad_records=1") as job:
        assert job.wait() == 0, job.output
    assert f"warning: 1 damaged records are left out (train.max_bad_records): {path}: record 200 at" in job.output
    assert job.result()["bad_records"] == 1
    assert counts(job, 200)[520] == 0


@pytest.mark.slow
def test_tasks_that_see_other_files_are_refused(tmp_path: Path) -> None:
    write(tmp_path)
    with Job(tmp_path, spec(mirrored, tmp_path, 16, train={"steps": 10}, settings={"own": True})) as job:
        assert job.wait() == 2, job.output
    assert "worker:1 has 1 files with 20 records, and the chief 1 files with 300 records" in job.output
