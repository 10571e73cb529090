"""What goes wrong is reported in one line, within its deadline, with a documented exit code. Real processes."""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.harness import TRAINER, Job, alive, get_json, processes
from tests.local.specs import EITHER, KEY, KEYED, PACED, mirrored, parameter_server
from trainer.job import load
from trainer.job.cluster import Task, tasks_of
from trainer.job.errors import Exit
from trainer.model_dir import compatibility, layout, result
from trainer.model_dir.files import write_json
from trainer.targets.local import ports

TASK = [*TRAINER, "task"]
SOON = {"start": 10, "rejoin": 10, "chief_lost": 30}
LATER = {"start": 60}
"""For tasks that come and are wrong, so that the job does not end before they come."""


Environments = Callable[[dict[str, Any], Path], dict[str, tuple[Task, dict[str, str]]]]


@pytest.fixture
def environments() -> Iterator[Environments]:
    """Each task of a spec on local ports of the test's own, with the environment that a container would give it."""
    with contextlib.ExitStack() as stack:

        def make(spec: dict[str, Any], model_dir: Path) -> dict[str, tuple[Task, dict[str, str]]]:
            job = load.build({"model_dir": str(model_dir), **spec})
            taken = stack.enter_context(ports.reserve([task.name for task in tasks_of(job)], None))
            tasks = tasks_of(job, lambda task_type, index: f"127.0.0.1:{taken[f'{task_type}:{index}']}")
            return {task.name: (task, environment(task, job.model_dump_json(exclude_none=True))) for task in tasks}

        yield make


def environment(task: Task, job: str) -> dict[str, str]:
    return {**os.environ, "TF_CONFIG": task.tf_config(), "TRAINER_JOB": job, "TRAINER_CPUS": "1"}


def run_tasks(environs: list[dict[str, str]], timeout: float = 60) -> list[tuple[int, str]]:
    """Runs `trainer task` with each environment to the end; gives exit codes and outputs."""
    with processes([(TASK, environ) for environ in environs]) as running:
        outputs = [process.communicate(timeout=timeout)[0] for process in running]
        return [(process.returncode, output) for process, output in zip(running, outputs, strict=True)]


def errors(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("trainer: ")]


def test_a_task_that_never_comes_is_named_at_the_deadline_by_all(tmp_path: Path, environments: Environments) -> None:
    made = environments(mirrored(workers=3, deadlines=SOON), tmp_path)
    begun = time.monotonic()
    ended = run_tasks([made["worker:0"][1], made["worker:1"][1]])
    assert time.monotonic() - begun < 60, "and not at a longer deadline"
    for code, output in ended:
        assert code == Exit.MISSING, output
        (line,) = errors(output)
        assert "worker:2: has not reported" in line
        assert "refused" in line


@pytest.mark.slow
def test_a_chief_that_never_starts_is_named_by_the_others(tmp_path: Path, environments: Environments) -> None:
    made = environments(parameter_server(deadlines={**SOON, "start": 4}), tmp_path)
    ((code, output),) = run_tasks([made["worker:0"][1]])
    assert code == Exit.CHIEF_LOST
    (line,) = errors(output)
    assert "chief:0" in line
    assert "refused" in line


@pytest.mark.slow
def test_a_task_that_returns_after_the_job_is_complete_and_the_chief_gone_exits_with_0(
    tmp_path: Path, environments: Environments
) -> None:
    for steps, wanted in ((400, Exit.OK), (500, Exit.CHIEF_LOST)):  # the second asks for more than there is
        spec = parameter_server(steps=steps, deadlines=SOON)
        made = environments(spec, tmp_path)
        done = load.build(parameter_server())
        key = compatibility.key(done, done.tasks.counts(), None)
        write_json(
            layout.result(tmp_path),
            {"status": "succeeded", "compatibility_key": {**key, **result.steps_asked(done)}},
        )
        for code, output in run_tasks([made["worker:0"][1], made["ps:0"][1]]):
            assert code == wanted, output
            assert ("the job is complete" in output) == (wanted == Exit.OK)


@pytest.mark.slow
def test_an_evaluator_that_comes_back_when_the_chief_is_gone_scores_the_last_checkpoint(
    tmp_path: Path, environments: Environments
) -> None:
    spec = mirrored(steps=50, workers=1)
    with Job(tmp_path, spec) as job:
        assert job.wait() == 0, job.output
    made = environments({**spec, "tasks": {"worker": 1, "evaluator": 1}}, job.model_dir)
    ((code, output),) = run_tasks([made["evaluator:0"][1]])
    assert code == Exit.OK, output
    (scored,) = (json.loads(line) for line in (job.model_dir / "evaluation.jsonl").read_text().splitlines())
    assert scored["step"] == 50
    assert scored["accuracy"] == pytest.approx(job.result()["test_accuracy"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "reason"),
    # 192.0.2.0/24 is reserved for documentation (RFC 5737).
    [
        ("nowhere.invalid:2222", "nowhere.invalid does not resolve (DNS)"),
        ("192.0.2.1:2222", "192.0.2.1:3222"),
    ],
    ids=["name", "host"],
)
def test_a_wrong_address_is_named_with_its_reason(
    tmp_path: Path, environments: Environments, address: str, reason: str
) -> None:
    made = environments(mirrored(workers=2, deadlines={"start": 20}), tmp_path)
    worker, environ = made["worker:1"]
    cluster = {"worker": [worker.cluster["worker"][0], address]}
    environs = [environment(Task("worker", i, cluster), environ["TRAINER_JOB"]) for i in (0, 1)]
    code, output = run_tasks(environs)[0]
    assert code == Exit.MISMATCH, output
    assert any("worker:1" in line and reason in line for line in errors(output)), output


@pytest.mark.slow
def test_another_cluster_json_is_refused_at_once_and_the_job_ends(tmp_path: Path, environments: Environments) -> None:
    made = environments(mirrored(workers=2, deadlines=LATER), tmp_path)
    worker, environ = made["worker:1"]
    other = Task("worker", 1, {"worker": [*worker.cluster["worker"], "127.0.0.1:2222"]})
    (chief_code, chief_output), (code, output) = run_tasks(
        [made["worker:0"][1], environment(other, environ["TRAINER_JOB"])]
    )
    assert code == chief_code == Exit.MISMATCH
    for text in (output, chief_output):
        (line,) = errors(text)
        assert "worker:1 has a different cluster" in line


@pytest.mark.slow
def test_another_tensorflow_version_is_refused_with_both_versions(tmp_path: Path, environments: Environments) -> None:
    made = environments(mirrored(workers=2, deadlines=LATER), tmp_path)
    # What importlib.metadata reads, earlier on the path than the real one.
    info = tmp_path / "other" / "tensorflow_cpu-2.20.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tensorflow-cpu\nVersion: 2.20.0\n")
    other = {**made["worker:1"][1], "PYTHONPATH": str(info.parent)}
    ended = run_tasks([made["worker:0"][1], other])
    for code, output in ended:
        assert code == Exit.MISMATCH, output
        (line,) = errors(output)
        assert "worker:1 has tensorflow 2.20.0, the chief 2.21.0" in line


def test_another_workload_file_is_refused_with_its_name(tmp_path: Path, environments: Environments) -> None:
    made = environments(mirrored(workers=2, deadlines=LATER, workload="mine.py"), tmp_path / "run")
    commands = []
    for index, (_, environ) in enumerate(made.values()):
        folder = tmp_path / str(index)
        folder.mkdir()
        (folder / "mine.py").write_text(f"from trainer.workloads.digits import DATASET, model\n# {index}\n")
        commands.append((["env", f"--chdir={folder}", *TASK], environ))
    with processes(commands) as running:
        ended = [process.communicate(timeout=60)[0] for process in running]
    for process, output in zip(running, ended, strict=True):
        assert process.returncode == Exit.MISMATCH, output
        (line,) = errors(output)
        assert "worker:1 has a different workload file (mine.py) than the chief; give all tasks the same file" in line


@pytest.mark.parametrize(
    ("spec", "without", "why"),
    [
        (
            mirrored(workload=KEYED, secrets={"API_KEY": {"secret": "s"}}),
            "API_KEY",
            "secrets.API_KEY: the variable is not set in this task, or is empty",
        ),
        (
            {"strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, "program": ["sleep", "60"], "code": []},
            "PATH",
            "program: 'sleep': no such command in PATH",
        ),
    ],
    ids=["secret", "program"],
)
def test_a_task_that_cannot_start_ends_the_job_with_its_reason(
    tmp_path: Path, environments: Environments, spec: dict[str, Any], without: str, why: str
) -> None:
    """As on Kubernetes, where its pod would start again and again, and the chief wait for half an hour."""
    made = environments({"name": "j", "deadlines": {"start": 600}, **spec}, tmp_path)
    (_, chief), (_, other) = made.values()
    ended = run_tasks([{"API_KEY": KEY, **chief}, {**other, without: ""}])
    assert [code for code, _ in ended] == [Exit.USER, Exit.USER], ended
    (first,), (second,) = (errors(output) for _, output in ended)
    assert first.startswith(f"trainer: worker:1: {why}")
    assert second.startswith(f"trainer: {why}")


@pytest.mark.slow
def test_another_secret_is_refused_and_neither_is_printed(tmp_path: Path, environments: Environments) -> None:
    made = environments(mirrored(workers=2, deadlines={"start": 20}), tmp_path)
    (tmp_path / "secret").write_text("7d793037a0760186\n")
    (_, chief), (_, other) = made.values()
    ended = run_tasks(
        [
            {**chief, "TRAINER_SECRET_FILE": str(tmp_path / "secret")},
            {**other, "TRAINER_SECRET": "2cf24dba5fb0a30e"},
        ]
    )
    refused = "a report from 127.0.0.1 as worker:1 lacks this job's secret"
    wanted = [(Exit.MISSING, refused), (Exit.MISMATCH, "than its chief")]
    for (code, output), (expected, reported) in zip(ended, wanted, strict=True):
        assert code == expected, output
        (line,) = errors(output)
        assert reported in line
        assert not {"7d793037a0760186", "2cf24dba5fb0a30e"} & set(re.findall(r"\w+", output))


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
        address = f"http://127.0.0.1:{json.loads((job.model_dir / 'state.json').read_text())['control_port']}/report"
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(urllib.request.Request(address, b"{}"), timeout=5)
        assert caught.value.code == 400
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


def test_a_port_in_use_is_named(tmp_path: Path, environments: Environments) -> None:
    made = environments(mirrored(workers=1), tmp_path)
    task, environ = made["worker:0"]
    assert task.address is not None
    for port in (task.address[1], task.control_address("worker", 0)[1]):
        with socket.create_server(("127.0.0.1", port)):
            ((code, output),) = run_tasks([environ])
        assert code == Exit.USER, output
        (line,) = errors(output)
        assert f"port {port} " in line
        assert "in use" in line


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
def test_a_late_task_is_notified_by_a_chief_that_was_refused(tmp_path: Path, environments: Environments) -> None:
    (tmp_path / "file").write_text("")
    made = environments(mirrored(workers=2), tmp_path / "file" / "run")
    with processes([(TASK, made["worker:0"][1])]) as (chief,):
        assert chief.stdout is not None
        said = next(line for line in chief.stdout if line.startswith("trainer: "))
        assert "cannot be written" in said
        ((code, output),) = run_tasks([made["worker:1"][1]])
        assert (code, errors(output)) == (Exit.USER, [said.strip()])
        assert chief.wait(10) == Exit.USER


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
    assert not (tmp_path / "run" / "result.json").exists()


@pytest.mark.parametrize(
    ("tf_config", "said"),
    [
        ("{", "is not JSON"),
        ({"task": {"type": "worker", "index": "0"}}, "must be a whole number, not text"),
        ({"task": {"type": "worker", "index": 7}}, "the number of worker tasks is 1"),
        ({"cluster": {"evaluator": ["a:1"], "worker": ["b:1"]}}, "the evaluator is never part of the cluster"),
    ],
    ids=["not-json", "index-as-text", "index-out-of-range", "evaluator-inside"],
)
def test_a_broken_tf_config_is_reported(tmp_path: Path, environments: Environments, tf_config: Any, said: str) -> None:
    _, environ = environments(mirrored(workers=1), tmp_path)["worker:0"]
    if isinstance(tf_config, dict):
        tf_config = json.dumps({**json.loads(environ["TF_CONFIG"]), **tf_config})
    ((code, output),) = run_tasks([{**environ, "TF_CONFIG": tf_config}])
    assert code == Exit.USER
    assert said in output
    assert all(line.startswith("trainer: ") or not line for line in output.splitlines()), output


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
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["steps"] == 200
    assert all("workers=2 ps=2" in line for line in result["tasks"].values())


def test_a_chief_that_was_replaced_while_it_could_not_run_writes_nothing_more_and_ends(
    tmp_path: Path, environments: Environments
) -> None:
    """As after the loss of a node that comes back: both chiefs have the same model_dir."""
    spec = mirrored(steps=100_000, workers=1, workload=PACED, train={"checkpoint_steps": 100})
    both = [environments(spec, tmp_path)["worker:0"] for _ in range(2)]
    commands = [(TASK, {**environ, "TRAINER_RUN": "the same"}) for _, environ in both]
    first, second = ("http://{}:{}/status".format(*task.control_address("worker", 0)) for task, _ in both)
    with processes(commands[:1]) as (old,):
        pids = [old.pid, until(first, "last_checkpoint")["tasks"]["worker:0"]["child_pid"]]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        written = layout.state(tmp_path).read_text()
        with processes(commands[1:]) as (new,):
            step = until(second, "step")["step"]
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            output, _ = old.communicate(timeout=30)
            assert old.returncode == Exit.REPLACED, output
            assert "another chief has taken this one's place" in output
            assert not alive(pids[1])
            later = until(second, "step", step + 300)
            assert later["generation"] == 2, "the new one was not disturbed"
            assert json.loads(layout.state(tmp_path).read_text())["incarnation"] not in written
            new.terminate()
            output, _ = new.communicate(timeout=60)
            assert new.returncode == Exit.STOPPED, output


def until(url: str, figure: str, least: int = 1) -> dict[str, Any]:
    """Waits until a figure of a chief's status is at least so high."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            if ((status := get_json(url)).get(figure) or 0) >= least:
                return status
        time.sleep(0.1)
    raise AssertionError(f"{figure} of {url} did not reach {least}")
