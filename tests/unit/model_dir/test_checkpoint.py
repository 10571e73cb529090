import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from trainer.job.errors import Exit, UserError
from trainer.model_dir import checkpoint


def values(seed: float = 0) -> checkpoint.Values:
    return {"model.000": np.full((20, 30), seed, np.float32), "optimizer.000": np.array(seed, np.int64)}


def latest(folder: Path) -> tuple[checkpoint.Checkpoint | None, list[str]]:
    found, broken, _ = restored(folder)
    return found, broken


def restored(folder: Path) -> tuple[checkpoint.Checkpoint | None, list[str], checkpoint.Values]:
    """The newest intact checkpoint, lines about others, and its values."""
    read: checkpoint.Values = {}
    found, broken = checkpoint.restore(folder, lambda _: None, lambda _, arrays: read.update(arrays))
    return found, broken, read


def save(folder: Path, *steps: int) -> None:
    for step in steps:
        checkpoint.save(folder, step, values(step), {})


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def cut_off(path: Path) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def flip_a_bit(path: Path) -> None:
    whole = bytearray(path.read_bytes())
    whole[len(whole) // 2] ^= 1
    path.write_bytes(whole)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3)])
def test_every_dtype_and_shape_comes_back_as_it_was(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    known = getattr(ml_dtypes, dtype, dtype)
    saved = (np.arange(np.prod(shape, dtype=int)) % 5 - 1).reshape(shape).astype(known)
    meta = {"variables": {"model.000": {"path": "v", "shape": list(shape), "dtype": dtype}}}
    checkpoint.save(tmp_path, 1, {"model.000": saved}, meta)
    found, _, values = restored(tmp_path)
    assert found is not None
    read = values["model.000"]
    assert (read.dtype, read.shape, read.tobytes()) == (saved.dtype, shape, saved.tobytes())


def test_what_was_saved_is_reported(tmp_path: Path) -> None:
    assert latest(tmp_path) == (None, [])
    checkpoint.save(tmp_path, 7, values(), {"compatibility_key": {"workload": "digits"}})
    found, broken = latest(tmp_path)
    assert found is not None
    assert (found.step, found.meta["compatibility_key"], broken) == (7, {"workload": "digits"}, [])
    assert found.path.name == "step-00000007"


@pytest.mark.parametrize("limit", [300, 2000, 4000, 5000])
def test_a_save_that_fails_half_way_leaves_nothing(tmp_path: Path, limit: int) -> None:
    """The kernel refuses to write more than `limit` bytes to a file, as a full disk does (setrlimit(2))."""
    save(tmp_path, 100)
    program = f"""
import resource, numpy, sys
from trainer.job.errors import UserError
from trainer.model_dir import checkpoint, checkpoint_meta
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
values = {{"model.000": numpy.zeros(500, numpy.float32), "model.001": numpy.zeros(500, numpy.float32)}}
try:
    checkpoint.save({str(tmp_path)!r}, 200, values, {{"variables": {{"x": "y" * 6000}}}})
except UserError as error:
    print(error)
    sys.exit(error.code)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (Exit.USER, "")
    assert ended.stdout == (
        f"model_dir: {tmp_path}/checkpoints/step-00000200: the checkpoint of step 200 (0.0 MB) cannot be written: "
        "File too large; make room or choose another model_dir; earlier checkpoints are intact\n"
    )
    assert files(tmp_path) == ["step-00000100"]


def test_the_message_names_the_space_that_is_needed(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").write_text("a file where a folder should be")
    with pytest.raises(UserError, match=r"step 5 \(4\.0 MB\) cannot be written: Not a directory; make room or"):
        checkpoint.save(tmp_path, 5, {"model.000": np.zeros(1_000_000, np.float32)}, {})


DAMAGES = [(cut_off, "variables.npz"), (flip_a_bit, "variables.npz"), (Path.unlink, "variables.npz")]
DAMAGES += [(cut_off, "meta.json"), (Path.unlink, "meta.json")]


@pytest.mark.parametrize(("damage", "name"), DAMAGES)
def test_after_a_damaged_checkpoint_the_previous_one_is_used_and_logged(tmp_path: Path, damage: Any, name: str) -> None:
    save(tmp_path, 100, 200, 300)
    damaged = tmp_path / "checkpoints" / "step-00000300"
    damage(damaged / name)
    found, broken, values = restored(tmp_path)
    assert found is not None
    assert found.step == 200
    assert float(values["model.000"][0, 0]) == 200
    (line,) = broken
    renamed = "and was renamed to .damaged-step-00000300; using that of step 200"
    reported = f"is damaged (its SHA-256 differs from meta.json), {renamed}"
    assert line == f"{damaged} {reported}"
    assert checkpoint.steps(tmp_path) == [100, 200], "it is no checkpoint any more"
    assert latest(tmp_path)[1] == [], "and is reported once"
    checkpoint.prune(tmp_path, 1)
    assert files(tmp_path) == [".damaged-step-00000300", "step-00000200"], "it takes no good one's place"


def test_if_all_are_damaged_there_is_none_and_each_is_reported(tmp_path: Path) -> None:
    save(tmp_path, 100, 200)
    for step in (100, 200):
        cut_off(tmp_path / "checkpoints" / f"step-00000{step}" / "variables.npz")
    found, broken = latest(tmp_path)
    assert found is None
    assert [line.split(" is ")[0][-3:] for line in broken] == ["200", "100"]
    assert all(
        line.endswith("; no intact checkpoint is left, so training starts from the beginning") for line in broken
    )


def test_if_all_are_damaged_and_values_of_one_were_taken_the_job_is_to_be_run_again(tmp_path: Path) -> None:
    """Damage that shows at the end of the file: the model no longer has its first values."""
    save(tmp_path, 100, 200)
    for step in (100, 200):
        flip_a_bit(tmp_path / "checkpoints" / checkpoint.name(step) / "variables.npz")
    with pytest.raises(UserError, match=r"step-00000200 is .*step-00000100 is .*; run the job again, from the begin"):
        latest(tmp_path)
    assert latest(tmp_path) == (None, [])


def test_a_single_checkpoint_is_verified_before_its_values_are_taken(tmp_path: Path) -> None:
    save(tmp_path, 100)
    flip_a_bit(tmp_path / "checkpoints" / checkpoint.name(100) / "variables.npz")
    found, broken, values = restored(tmp_path)
    assert (found, len(broken), values) == (None, 1, {})


def test_a_checkpoint_of_a_newer_version_is_refused_and_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    save(tmp_path, 100, 200)
    meta = tmp_path / "checkpoints" / checkpoint.name(200) / "meta.json"
    meta.write_text(json.dumps({"format": 2, "step": {"number": 200}}))
    line = rf"{meta.parent}: cannot be read: format: 2: this trainer reads formats up to 1; use the version of trainer"
    for read in (checkpoint.newest, latest):
        with pytest.raises(UserError, match=line):
            read(tmp_path)
    assert checkpoint.steps(tmp_path) == [100, 200]


def test_of_the_damaged_ones_the_newest_is_kept(tmp_path: Path) -> None:
    for step in (40, 99_999_999, 100_000_000, 300):
        save(tmp_path, step)
        cut_off(tmp_path / "checkpoints" / checkpoint.name(step) / "variables.npz")
        latest(tmp_path)
    save(tmp_path, 20)
    checkpoint.prune(tmp_path, 3)
    assert files(tmp_path) == [".damaged-step-100000000", "step-00000020"]


def test_each_change_of_the_workload_is_known_from_the_checkpoints_alone(tmp_path: Path) -> None:
    key: dict[str, Any] = {"workload_sha256": "one", "train.seed": 3}
    for step, sha in [(10, "one"), (20, "one"), (30, "two"), (40, "two"), (50, "three")]:
        key = {**key, "workload_sha256": sha}
        changes = checkpoint.workload_changes(tmp_path, key)
        checkpoint.save(tmp_path, step, values(), {"compatibility_key": key, "workload_changed_after": changes})
    assert checkpoint.workload_changes(tmp_path, key) == [20, 40]
    assert checkpoint.workload_changes(tmp_path, {**key, "workload_sha256": "one"}) == [20, 40, 50]
    assert checkpoint.workload_changes(tmp_path / "none", key) == []


def test_the_same_step_saved_twice_is_kept_as_it_was(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 5, values(1), {})
    path = checkpoint.save(tmp_path, 5, values(2), {})
    loaded = checkpoint.load(path)
    assert loaded is not None
    assert loaded[1]["optimizer.000"] == 1


@pytest.mark.parametrize("name", ["variables.npz", "meta.json"])
def test_a_damaged_checkpoint_is_replaced_when_its_step_comes_again(tmp_path: Path, name: str) -> None:
    path = checkpoint.save(tmp_path, 5, values(1), {})
    cut_off(path / name)
    checkpoint.save(tmp_path, 5, values(2), {})
    loaded = checkpoint.load(path)
    assert loaded is not None
    assert loaded[1]["optimizer.000"] == 2


@pytest.mark.parametrize("keep", [1, 2, 9])
def test_prune_keeps_the_newest(tmp_path: Path, keep: int) -> None:
    steps = [5, 40, 300, 99_999_999, 100_000_000]
    save(tmp_path, *steps)
    assert checkpoint.steps(tmp_path) == steps
    checkpoint.prune(tmp_path, keep)
    assert checkpoint.steps(tmp_path) == steps[-keep:]
    found, _ = latest(tmp_path)
    assert found is not None
    assert found.step == 100_000_000


def test_a_checkpoint_that_is_removed_meanwhile_is_gone_at_each_moment(tmp_path: Path) -> None:
    save(tmp_path, 7)
    there = checkpoint.written(tmp_path, 7)
    assert there is not None
    assert there[1] > values()["model.000"].nbytes
    for file in (tmp_path / "checkpoints" / "step-00000007").iterdir():
        file.unlink()
    assert checkpoint.written(tmp_path, 7) is None
    (tmp_path / "checkpoints" / "step-00000007").rmdir()
    assert checkpoint.written(tmp_path, 7) is None


@pytest.mark.parametrize("process", [1, os.getpid()], ids=["other", "own"])
def test_what_an_interrupted_save_left_is_no_checkpoint_and_goes(tmp_path: Path, process: int) -> None:
    """Also that of a process in another container, which had the same id."""
    save(tmp_path, 100)
    left = tmp_path / "checkpoints" / f".tmp-step-00000200-{process}"
    shutil.copytree(tmp_path / "checkpoints" / "step-00000100", left)
    assert checkpoint.steps(tmp_path) == [100]
    checkpoint.prune(tmp_path, 3)
    assert files(tmp_path) == ["step-00000100"]


def test_a_process_that_is_killed_while_it_saves_leaves_no_checkpoint(tmp_path: Path) -> None:
    program = f"""
import os, signal, numpy
from trainer.model_dir import checkpoint, checkpoint_meta
checkpoint._sync = lambda descriptor: os.kill(os.getpid(), signal.SIGKILL)
checkpoint.save({str(tmp_path)!r}, 200, {{"model.000": numpy.zeros(9)}}, {{}})
"""
    ended = subprocess.run([sys.executable, "-c", program], check=False)
    assert ended.returncode == -9
    assert len(files(tmp_path)) == 1
    assert latest(tmp_path) == (None, [])
    save(tmp_path, 200)
    checkpoint.prune(tmp_path, 3)
    assert files(tmp_path) == ["step-00000200"]


def test_what_reads_while_the_chief_prunes_gets_a_whole_checkpoint_or_none(tmp_path: Path) -> None:
    """Another process, the evaluator's, which the chief does not wait for."""
    over = threading.Event()

    def train() -> None:
        for step in range(1, 150):
            save(tmp_path, step)
            checkpoint.prune(tmp_path, 1)
        over.set()

    writer = threading.Thread(target=train)
    writer.start()
    found = 0
    while not over.is_set():
        for step in checkpoint.steps(tmp_path)[-1:]:
            loaded = checkpoint.load(checkpoint.folder(tmp_path) / checkpoint.name(step))
            if loaded is not None:
                assert (loaded[0].step, float(loaded[1]["model.000"][7, 7])) == (step, step)
                found += 1
    writer.join()
    assert found > 1
    assert checkpoint.steps(tmp_path) == [149]


@pytest.mark.parametrize(("damage", "name"), DAMAGES)
def test_a_damaged_checkpoint_is_not_loaded(tmp_path: Path, damage: Any, name: str) -> None:
    path = checkpoint.save(tmp_path, 5, values(), {})
    damage(path / name)
    assert checkpoint.load(path) is None
