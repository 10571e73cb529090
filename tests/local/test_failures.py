"""What goes wrong is reported in one line, within its deadline, with a documented exit code. Real processes."""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.local.specs import EITHER, PACED, mirrored, parameter_server
from tests.local.tasks import run_tasks
from tests.tools.harness import TRAINER, Job, alive
from trainer.job import load
from trainer.job.errors import Exit
from trainer.model_dir import layout
from trainer.targets.local import ports


@pytest.mark.slow
def test_the_secret_of_a_local_job_is_in_no_file_status_or_child(tmp_path: Path) -> None:
    with Job(tmp_path, mirrored(steps=30_000, workers=2, workload=PACED)) as job:
        job.until_step(5)
        environ = Path(f"/proc/{job.pid('worker:1', 'pid')}/environ").read_bytes()
        (secret,) = re.findall(rb"TRAINER_SECRET=(\S+?)\0", environ)
        child = Path(f"/proc/{job.pid('worker:1')}")
        seen = [json.dumps(job.status()).encode(), job.output.encode()]
        seen += [(child / name).read_bytes() for name in ("environ", "cmdline")]
        seen += [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
        address = f"http://127.0.0.1:{json.loads(layout.state(job.model_dir).read_text())['control_port']}/report"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(address, b"{}"), timeout=5)
        assert caught.value.code == 403
        caught.value.close()
    assert len(secret) >= 32
    assert not any(secret in each for each in seen)


@pytest.mark.parametrize("make", EITHER)
def test_fewer_gpus_than_asked_for(tmp_path: Path, make: Any) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "-1"}
    with Job(tmp_path, make(tasks={"worker": {"replicas": 2, "gpus": 1}}), environ=environ) as job:
        assert job.wait() == Exit.DEVICES, job.output
    assert "asked for 1 GPU(s), sees 0" in job.output
    assert not list(tmp_path.glob("run/checkpoints/*"))


@pytest.mark.parametrize("make", EITHER)
def test_a_loss_that_is_not_finite_stops_the_job_with_its_step(tmp_path: Path, make: Any) -> None:
    workload = tmp_path / "explodes.py"
    workload.write_text(
        "import tensorflow as tf\n"
        "from trainer.workloads.digits import DATASET, model\n"
        "def loss(y, prediction):\n"
        "    return tf.reduce_sum(prediction, -1) * float('inf') * 0.0\n"
    )
    with Job(tmp_path, make(workload=str(workload))) as job:
        assert job.wait() == Exit.DIVERGED, job.output
    step = re.search(r"the loss is nan at step (\d+);", job.output)
    assert step is not None, job.output
    assert "; there is no checkpoint yet" in job.output
    # Every loss is NaN; under parameter_server each of the two workers stops at its first step.
    assert int(step[1]) <= (1 if make is mirrored else 2)
    assert not list(tmp_path.glob("run/checkpoints/*"))


def test_an_exception_in_the_workload_names_file_and_line(tmp_path: Path) -> None:
    workload = tmp_path / "raises.py"
    workload.write_text("DATASET = 'digits'\n\ndef model():\n    return 1 / 0\n")
    with Job(tmp_path, mirrored(workload=str(workload))) as job:
        assert job.wait() == Exit.USER, job.output
    assert f"{workload}:4: ZeroDivisionError: division by zero" in job.output
    assert "Traceback" not in job.output


GENERATOR = """
import os, signal
import keras, numpy as np, tensorflow as tf

def model():
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])

def data(shard):
    def examples():
        for i in range(100_000):
            if i == 3000 and shard.split == "train":
                {at_3000}
            yield np.zeros(8, "float32"), np.int32(i % 4)
    return tf.data.Dataset.from_generator(examples, output_signature=(tf.TensorSpec((8,)), tf.TensorSpec((), tf.int32)))
"""


@pytest.mark.slow
@pytest.mark.parametrize("make", [mirrored, parameter_server])
def test_an_exception_in_a_generator_is_no_lost_peer_and_names_file_and_line(tmp_path: Path, make: Any) -> None:
    workload = tmp_path / "gen.py"
    workload.write_text(GENERATOR.format(at_3000='raise OSError("cannot read part-00007")'))
    with Job(tmp_path, make(workload=str(workload), train={"checkpoint_steps": 1000})) as job:
        assert job.wait() == Exit.USER, job.output
    assert f"{workload}:12: OSError: cannot read part-00007" in job.output
    assert "generation 2 formed" not in job.output


@pytest.mark.slow
def test_a_crash_at_the_same_step_of_each_generation_ends_the_job(tmp_path: Path) -> None:
    workload = tmp_path / "gen.py"
    workload.write_text(GENERATOR.format(at_3000="os.kill(os.getpid(), signal.SIGSEGV)"))
    spec = mirrored(workers=1, workload=str(workload), train={"checkpoint_steps": 1000}, max_restarts=1)
    with Job(tmp_path, spec) as job:
        assert job.wait() == Exit.GAVE_UP, job.output
    assert "2 generations without a new step (max_restarts); last: worker:0 lost (killed by SIGSEGV)" in job.output


LABELS = """import keras
import numpy as np
import tensorflow as tf
from trainer.workloads.digits import model
def data(shard):
    y = np.arange(2000) % 13
    return tf.data.Dataset.from_tensor_slices((np.zeros((2000, 8, 8), "float32"), y))
"""


RANKS = """import keras
DATASET = "digits"
loss = keras.losses.binary_crossentropy
def model():
    return keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(1)])
"""


@pytest.mark.slow
@pytest.mark.parametrize("make", [mirrored, parameter_server])
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (LABELS, "a step: InvalidArgumentError: Received a label value of 1"),
        (RANKS, "loss(y, prediction): ValueError: Arguments `target` and `output` must have the same rank"),
    ],
    ids=["labels", "ranks"],
)
def test_a_user_error_is_attributed_to_user_code_even_if_the_last_frame_is_in_keras_or_tensorflow(
    tmp_path: Path, make: Any, text: str, said: str
) -> None:
    workload = tmp_path / "mine.py"
    workload.write_text(text)
    with Job(tmp_path, make(workload=str(workload))) as job:
        assert job.wait() == Exit.USER, job.output
    assert f"workload: {workload}: {said}" in job.output
    assert "unexpected" not in job.output
    assert "generation 2" not in job.output


def test_a_corrupt_dataset_is_named_with_both_hashes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {f"x_{s}": rng.integers(0, 9, (50, 8, 8), np.uint8) for s in ("train", "test")}
    np.savez(tmp_path / "digits.npz", **arrays, y_train=np.zeros(50, np.uint8), y_test=np.zeros(50, np.uint8))  # type: ignore[arg-type]
    with Job(tmp_path, mirrored(workers=1), environ={"TRAINER_DATA_DIR": str(tmp_path)}) as job:
        assert job.wait() == Exit.USER, job.output
    assert "SHA-256 of its arrays is " in job.output
    assert "expected 239e9608dd93" in job.output


@pytest.mark.slow
def test_a_truncated_checkpoint_is_skipped_and_logged(tmp_path: Path) -> None:
    with Job(tmp_path, mirrored(steps=200, workers=1)) as job:
        assert job.wait() == 0, job.output
    archive = job.model_dir / "checkpoints" / "step-00000200" / "variables.npz"
    archive.write_bytes(archive.read_bytes()[: archive.stat().st_size // 2])
    with Job(tmp_path, mirrored(steps=300, workers=1)) as again:
        assert again.wait() == 0, again.output
    assert "step-00000200 is damaged" in again.output
    assert "resume_step=100" in again.output
    assert again.result()["steps"] == 300


@pytest.mark.slow
@pytest.mark.parametrize("make", [mirrored, parameter_server])
def test_fewer_steps_than_the_checkpoint_has_are_refused_before_a_step(tmp_path: Path, make: Any) -> None:
    with Job(tmp_path, make(steps=100)) as job:
        assert job.wait() == 0, job.output
    with Job(tmp_path, make(steps=None, train={"epochs": 1})) as again:
        assert again.wait() == Exit.USER, again.output
    steps = 22 if make is mirrored else 44
    assert f"train.epochs: 1: the checkpoint is at step 100, this job ends at step {steps}; undo the" in again.output
    assert again.result()["steps"] == 100, "the result of the first job"


def test_a_model_dir_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with Job(tmp_path, mirrored(workers=1, model_dir=str(tmp_path / "file" / "run"))) as job:
        assert job.wait() == Exit.USER, job.output
    assert "model_dir" in job.output
    assert "Traceback" not in job.output


@pytest.mark.slow
def test_a_full_disk_ends_the_job_with_the_size_and_nothing_half_written(tmp_path: Path) -> None:
    """The kernel refuses to let files grow beyond 64 kB, as a full disk would refuse."""
    spec = tmp_path / "job.yaml"
    spec.write_text(json.dumps({"model_dir": str(tmp_path / "run"), **mirrored(workers=1)}))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (64 << 10, 64 << 10))

    ended = subprocess.run(
        [*TRAINER, "local", str(spec), "--plain"], capture_output=True, text=True, preexec_fn=limit, timeout=100
    )
    assert ended.returncode == Exit.USER, ended.stdout + ended.stderr
    assert "the checkpoint of step 100" in ended.stdout + ended.stderr
    assert "File too large" in ended.stdout + ended.stderr
    assert not list((tmp_path / "run" / "checkpoints").iterdir())
    assert not layout.result(tmp_path / "run").exists()


@pytest.mark.slow
def test_two_jobs_on_one_model_dir_are_kept_apart(tmp_path: Path) -> None:
    with Job(tmp_path, mirrored(steps=30_000, workers=1, workload=PACED)) as first:
        first.until_step(10)
        second = subprocess.run(
            [*TRAINER, "local", str(first.spec_path), "--plain"], capture_output=True, text=True, timeout=60
        )
        assert second.returncode == Exit.USER, second.stdout
        assert "another job is using it" in second.stdout + second.stderr
        first.until("the first goes on", lambda s: s["phase"] == "running")


@pytest.mark.slow
def test_no_process_is_left_behind(tmp_path: Path) -> None:
    """Even after SIGKILL of `trainer local` itself."""
    with Job(tmp_path, parameter_server(steps=30_000, workload=PACED)) as job:
        status = job.until_step(50)
        pids = [row[key] for row in status["tasks"].values() for key in ("pid", "child_pid")]
        job.process.kill()
        deadline = time.monotonic() + 20
        while (left := [pid for pid in pids if alive(pid)]) and time.monotonic() < deadline:
            time.sleep(0.1)
    assert not left


@pytest.mark.slow
def test_a_tf_config_of_another_program_is_used_unchanged(tmp_path: Path) -> None:
    """Three workers and two ps, no chief: the TF_CONFIG of the distribution guide, with ports of this machine."""
    spec = parameter_server(steps=200, workers=1, model_dir=str(tmp_path))
    job = load.build(spec).model_dump_json(exclude_none=True)
    names = ["worker:0", "worker:1", "worker:2", "ps:0", "ps:1"]
    with ports.reserve(names) as taken:
        addresses = {kind: [f"127.0.0.1:{taken[n]}" for n in names if n.startswith(kind)] for kind in ("worker", "ps")}
        environs = []
        for name in names:
            task_type, _, index = name.partition(":")
            config = {"cluster": addresses, "task": {"type": task_type, "index": int(index)}}
            environs.append({**os.environ, "TF_CONFIG": json.dumps(config), "TRAINER_JOB": job, "TRAINER_CPUS": "1"})
        ended = run_tasks(environs, timeout=120)
    assert [code for code, _ in ended] == [0] * 5, ended
    assert "chief:0 (worker:0 of TF_CONFIG, which names no chief) of digits has started" in ended[0][1]
    result = json.loads(layout.result(tmp_path).read_text())
    assert result["steps"] == 200
    assert all("workers=2 ps=2" in line for line in result["tasks"].values())
