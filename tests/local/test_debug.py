"""For each exit code and each row of the table of troubles a job that really failed so: its archive names the cause."""

from __future__ import annotations

import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.local.specs import PACED, mirrored, parameter_server
from tests.local.tasks import TASK, until
from tests.local.test_evaluator import ENDLESS, UNSCORED
from tests.local.test_failures import GENERATOR
from tests.tools.debugged import Debugged
from tests.tools.documents import commands
from tests.tools.hangs import HANGS
from tests.tools.harness import TRAINER, Job, processes
from trainer.debug.symptoms import SYMPTOMS
from trainer.job.errors import Exit
from trainer.model_dir import layout
from trainer.model_dir import state as job_state

CRASH = GENERATOR.format(at_3000="__import__('ctypes').string_at(0)")
GONE = GENERATOR.format(at_3000="os._exit(7)")
NAN = """
import tensorflow as tf
from trainer.workloads.digits import DATASET, model
def loss(y, prediction):
    return tf.reduce_sum(prediction, -1) * float("inf") * 0.0
"""
BROKEN = """
from trainer.model_dir import checkpoint, layout
from trainer.workloads.digits import DATASET, model
checkpoint.write = None
"""
SHAPE = """import keras
from trainer.workloads.digits import DATASET
def model():
    return keras.Sequential([keras.Input((5,)), keras.layers.Dense(10)])
"""
PROGRAM = """import os, sys
def load(path):
    raise ValueError(f"{path} has no rows")
if '"index": 1' in os.environ["TF_CONFIG"]:
    load("part-00007")
import time; time.sleep(60)
"""


@dataclass(frozen=True)
class Case:
    """A job that fails, and what its verdict must say."""

    code: int
    spec: dict[str, Any]
    says: str
    """A regular expression for the line that `trainer debug` prints."""
    row: str
    """Begins the symptom of the row that it must name."""
    workload: str = ""
    environ: dict[str, str] = field(default_factory=dict)
    before: dict[str, Any] | None = None
    """A job that is run first, with the same model_dir."""
    place: str = ""
    """A line of the code that its page must have."""


def of_a_program(**more: Any) -> dict[str, Any]:
    strategy = {"name": "digits", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, "code": []}
    return {**strategy, **more}


CASES = {
    "a line of the workload": Case(
        2, mirrored(), r"worker:\d: workload: \S+mine\.py:3: ZeroDivisionError: division by zero",
        "exit code 2 with a file", "DATASET = 'digits'\ndef model():\n    return 1 / 0\n",
    ),
    "no memory": Case(
        2, mirrored(workers=1), r"worker:0: workload: \S+mine\.py:3: MemoryError$", "a task is killed",
        "from trainer.workloads.digits import model\ndef data(shard):\n    raise MemoryError\n",
    ),
    "a missing file": Case(
        2, mirrored(workers=1), r"worker:0: workload: \S+mine\.py:3: FileNotFoundError: .*'part-0007'",
        "`FileNotFoundError`", "from trainer.workloads.digits import model\ndef data(shard):\n    open('part-0007')\n",
        place="mine.py:3",
    ),
    "another shape": Case(
        2, mirrored(workers=1),
        r"worker:0: workload: \S+mine\.py: model\(x\): ValueError: Invalid input shape .*; x: uint8 \(32, 8, 8\)$",
        "exit code 2 with a call", SHAPE,
    ),
    "a defect": Case(
        1, mirrored(workers=1, steps=100),
        r"worker:0: unexpected TypeError: 'NoneType' object is not callable \(\w+\.py:\d+ in ", "exit code 1", BROKEN,
    ),
    "devices": Case(
        12, mirrored(tasks={"worker": {"replicas": 2, "gpus": 1}}), r"worker:\d: .*asked for 1 GPU\(s\), sees 0",
        "exit code 12", environ={"CUDA_VISIBLE_DEVICES": "-1"},
    ),
    "not a number": Case(
        13, mirrored(workers=1), r"worker:0: the loss is nan at step 1;", "exit code 13", NAN,
    ),
    "a crash": Case(
        14, mirrored(workers=1, train={"checkpoint_steps": 1000}, max_restarts=1),
        r"last: worker:0 lost \(killed by SIGSEGV\)", "`killed by SIGSEGV`", CRASH, place="mine.py:12",
    ),
    "an exit": Case(
        14, mirrored(workers=1, train={"checkpoint_steps": 1000}, max_restarts=0),
        r"worker:0 lost \(exited by itself with code 7, without a Python error\)", "`exited by itself", GONE,
    ),
    "an evaluation": Case(
        17, mirrored(steps=30, workers=1, deadlines={"evaluation": 4}),
        r"worker:0: the final evaluation and export took", "exit code 17", ENDLESS, {"ENDLESS": "1"},
    ),
    "a program": Case(
        18, of_a_program(program=["python", "{folder}/mine.py"]),
        r"worker:1: .*ValueError: part-00007 has no rows \(\S*mine\.py:3 in load\)", "exit code 18", PROGRAM,
    ),
    "overdue": Case(
        19, of_a_program(program=["sleep", "60"], deadlines={"job": 3, "stop": 2}),
        r"the job has taken longer than 3 s", "exit code 19",
    ),
    "other settings": Case(
        2, mirrored(workers=1, steps=200, train={"learning_rate": 0.5}),
        r"worker:0: model_dir: .*result 0\.001, now 0\.5", "exit code 2 with `model_dir`",
        before=mirrored(workers=1, steps=100),
    ),
    "complete": Case(
        0, mirrored(workers=1, steps=20), r"digits succeeded, and was already complete", "`already complete`",
        before=mirrored(workers=1, steps=20),
    ),
    "a slow start": Case(0, mirrored(workers=1, steps=20), r"digits succeeded", "a slow start"),
    "too many workers": Case(
        0, mirrored(workers=len(os.sched_getaffinity(0)) + 1, steps=20), r"digits succeeded", "fewer examples/s",
    ),
}  # fmt: skip
QUICK = ("a line of the workload", "a program")
"""Those that are run at each commit."""


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in CASES])
def test_the_verdict_names_the_planted_cause(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    (tmp_path / "mine.py").write_text(case.workload)
    spec = dict(case.spec)
    if "program" in spec:
        spec["program"] = [word.replace("{folder}", str(tmp_path)) for word in spec["program"]]
    elif case.workload:
        spec["workload"] = str(tmp_path / "mine.py")
    if case.before:
        with Job(tmp_path, case.before) as job:
            assert job.wait(300) == 0, job.output
    with Job(tmp_path, spec, environ=case.environ) as job:
        assert job.wait(300) == case.code, job.output
    found = Debugged(tmp_path, job.model_dir)
    assert_named(found, case.code, case.says, case.row)
    assert case.place in found.page


def assert_named(found: Debugged, code: int | None, says: str, row: str) -> None:
    assert re.search(says, found.headline), found.headline
    if code:
        assert f"exit code {code}" in found.headline
        assert f"Exit code {code}" in found.page
        assert Exit(code).meaning in found.page
    shown = min((each.shown for each in SYMPTOMS if each.shown.startswith(row)), key=len)
    assert found.advises(shown), found.page


@pytest.mark.slow
def test_a_full_disk(tmp_path: Path) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text(json.dumps({"model_dir": str(tmp_path / "run"), **mirrored(workers=1)}))
    limit = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16)); "
    command = [sys.executable, "-c", f"{limit}os.execv(sys.argv[1], sys.argv[1:])", *TRAINER, "local", str(spec)]
    assert subprocess.run(command, capture_output=True, timeout=100).returncode == Exit.USER
    says = r"the checkpoint of step 100 .*File too large"
    assert_named(Debugged(tmp_path, spec), Exit.USER, says, "`No space left on device`")


@pytest.mark.slow
def test_a_stopped_job(tmp_path: Path) -> None:
    with Job(tmp_path, mirrored(steps=30_000, workers=1, workload=PACED)) as job:
        job.until_step(5)
        job.process.send_signal(signal.SIGTERM)
        assert job.wait(300) == Exit.STOPPED
    found = Debugged(tmp_path, job.model_dir)
    assert re.search(r"digits was stopped: stopped by a signal; the checkpoint of step \d+ is kept", found.headline)
    assert found.advises("exit code 143")


@pytest.mark.slow
def test_a_hang(tmp_path: Path) -> None:
    hang = HANGS["pipe"]
    with Job(tmp_path, hang.write(tmp_path)) as job:
        assert job.wait(240) == Exit.GAVE_UP, job.output
    found = Debugged(tmp_path, job.model_dir)
    assert_named(found, Exit.GAVE_UP, "", "`no sign of life for")
    assert hang.names in found.page


@pytest.mark.slow
def test_an_evaluator_that_fails_is_a_remark_on_a_job_that_succeeded(tmp_path: Path) -> None:
    spec = mirrored(
        tasks={"worker": 1, "evaluator": 1}, api="train_and_evaluate", workload=UNSCORED, settings={"how": "raises"}
    )
    with Job(tmp_path, spec) as job:
        assert job.wait(300) == 0, job.output
    found = Debugged(tmp_path, job.model_dir)
    assert found.headline == "digits succeeded"
    assert f"workload: {UNSCORED}:18: ValueError: no such figure" in found.page


# Tasks that another program starts: their output is in model_dir/logs. -----------------------------------


def run_tasks(folder: Path, environs: list[dict[str, str]]) -> list[int]:
    """Exit codes of `trainer task` with each environment; the output of each is beside the tasks' logs."""
    layout.logs(folder).mkdir(parents=True, exist_ok=True)
    commands = []
    for environ in environs:
        task = json.loads(environ["TF_CONFIG"])["task"]
        log = layout.logs(folder) / f"{task['type']}-{task['index']}.out"
        commands.append((["sh", "-c", f'exec "$@" > {log} 2>&1', "sh", *TASK], environ))
    with processes(commands) as running:
        return [process.wait(60) for process in running]


def debugged_with_spec(folder: Path, spec: dict[str, Any]) -> Debugged:
    """The archive of a job whose tasks ended before its chief began: only its spec has its name."""
    path = folder / "job.yaml"
    path.write_text(json.dumps({**spec, "model_dir": str(folder / "run")}))
    return Debugged(folder, "--target", "local", path)


Environments = Callable[..., Any]


@pytest.mark.slow
def test_a_task_that_never_came(tmp_path: Path, environments: Environments) -> None:
    made = environments(mirrored(workers=2, deadlines={"start": 5, "rejoin": 5}), tmp_path / "run")
    assert run_tasks(tmp_path / "run", [made["worker:0"][1]]) == [Exit.MISSING]
    says = r"worker:1: has not reported"
    assert_named(Debugged(tmp_path, tmp_path / "run"), Exit.MISSING, says, "`waiting: 1 of 2")


@pytest.mark.slow
def test_a_task_with_another_spec(tmp_path: Path, environments: Environments) -> None:
    made = environments(mirrored(workers=2, deadlines={"start": 60}), tmp_path / "run")
    other = dict(made["worker:1"][1], TRAINER_SET="train.steps=401")
    assert run_tasks(tmp_path / "run", [made["worker:0"][1], other]) == [Exit.MISMATCH] * 2
    says = r"worker:1 has a different job spec|worker:1: .*spec"
    assert_named(Debugged(tmp_path, tmp_path / "run"), Exit.MISMATCH, says, "exit code 11")


def test_a_chief_that_never_came(tmp_path: Path, environments: Environments) -> None:
    spec = parameter_server(deadlines={"start": 3})
    made = environments(spec, tmp_path / "run")
    assert run_tasks(tmp_path / "run", [made["worker:0"][1]]) == [Exit.CHIEF_LOST]
    says = r"worker:0 has had no reply from its chief \(chief:0\) for 3 s"
    assert_named(debugged_with_spec(tmp_path, spec), None, says, "exit code 15")


@pytest.mark.slow
def test_a_port_in_use(tmp_path: Path, environments: Environments) -> None:
    spec = mirrored(workers=1)
    task, environ = environments(spec, tmp_path / "run")["worker:0"]
    with socket.create_server(("127.0.0.1", task.address[1])):
        assert run_tasks(tmp_path / "run", [environ]) == [Exit.USER]
    says = rf"port {task.address[1]} .*cannot be used: Address already in use"
    assert_named(debugged_with_spec(tmp_path, spec), None, says, "`port 2222")


@pytest.mark.slow
def test_a_chief_that_was_replaced(tmp_path: Path, environments: Environments) -> None:
    """Both have one model_dir, as after the loss of a node that comes back; the job continues."""
    spec = mirrored(steps=100_000, workers=1, workload=PACED)
    both = [environments(spec, tmp_path / "run")["worker:0"] for _ in range(2)]
    (logs := layout.logs(tmp_path / "run")).mkdir(parents=True)
    commands = [
        (
            ["sh", "-c", f'exec "$@" > {logs}/{name}.out 2>&1', "sh", *TASK],
            {**environ, "TRAINER_RUN": "one"},
        )
        for name, (_, environ) in zip(("old", "new"), both, strict=True)
    ]
    first, second = ("http://{}:{}/status".format(*task.control_address("worker", 0)) for task, _ in both)
    with processes(commands[:1]) as (old,):
        pids = [old.pid, until(first, "last_checkpoint")["tasks"]["worker:0"]["child_pid"]]
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        with processes(commands[1:]):
            until(second, "step")
            for pid in pids:
                os.kill(pid, signal.SIGCONT)
            assert old.wait(30) == Exit.REPLACED
            deadline = time.monotonic() + 30
            while not job_state.in_use(str(tmp_path / "run")):
                assert time.monotonic() < deadline, "the next chief takes the lock"
                time.sleep(0.05)
            found = Debugged(tmp_path, tmp_path / "run")
    assert "digits runs" in found.headline
    assert_named(found, None, "another chief has taken this one's place", "exit code 20")


# Targets that are not there, and jobs that never started. ---------------------------------------------


@pytest.mark.parametrize(
    ("target", "environ", "says"),
    [
        ("compose", {"DOCKER_HOST": "unix:///nowhere.sock"}, "no Docker Engine answers"),
        ("kubernetes", {"KUBECONFIG": "/nowhere"}, "no Kubernetes to connect to"),
    ],
)
def test_a_target_that_is_not_there(tmp_path: Path, target: str, environ: dict[str, str], says: str) -> None:
    (tmp_path / "job.yaml").write_text(json.dumps(mirrored()))
    found = Debugged(tmp_path, "--target", target, tmp_path / "job.yaml", environ=environ)
    assert found.headline.startswith(f"digits never started: {says}")
    assert Exit.TARGET.meaning in found.page
    assert found.advises("exit code 16")


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (mirrored(workload="mine.py"), r"workload: \S*mine\.py:1: import pandaz: no such module; pip install it"),
        (of_a_program(program=["pyhton", "x.py"]), "program: 'pyhton': no such command in PATH"),
        (
            mirrored(model_dir="{folder}/mine.py"),
            r"model_dir: \S+mine\.py: cannot be written: \S+mine\.py is no folder",
        ),
    ],
    ids=["import", "command", "model_dir"],
)
def test_why_a_job_never_started_is_found_again(tmp_path: Path, spec: dict[str, Any], says: str) -> None:
    (tmp_path / "mine.py").write_text("import pandaz\nfrom trainer.workloads.digits import DATASET, model\n")
    text = json.dumps({"model_dir": "{folder}/run", **spec})
    (tmp_path / "job.yaml").write_text(text.replace("{folder}", str(tmp_path)))
    found = Debugged(tmp_path, "--target", "local", tmp_path / "job.yaml")
    assert re.match(f"digits never started: {says}", found.headline), found.headline
    assert f"Exit code {int(Exit.USER)}" in found.page


def test_a_model_dir_that_may_not_be_read_is_named_with_its_owner() -> None:
    nobody = 65534 if os.geteuid() == 0 else None
    try:
        subprocess.run([sys.executable, "-c", "import trainer"], user=nobody, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("another user cannot run this Python")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder.chmod(0o777)
        (folder / "run").mkdir()
        (layout.make_own(folder / "run") / ".lock").touch()
        (folder / "run").chmod(0)
        (folder / "job.yaml").write_text(json.dumps(mirrored(model_dir=f"{folder}/run")))
        found = Debugged(folder, "--target", "local", folder / "job.yaml", user=nobody)
    says = f"model_dir: {folder}/run: cannot be read: run `trainer debug` as its owner, user {os.geteuid()}"
    assert found.headline == f"digits cannot be examined: {says}"


# All of it. -------------------------------------------------------------------------------------------


LOGS = """import os, sys, time
import trainer
for number in range(250_000):
    os.write(2, b"%07d %s\\n" % (number, b"x" * 200))
os.write(2, os.environ["API_KEY"].encode() + b" the last\\n")
os.write(2, b"<script>alert('hostile')</script><b>bold</b> \\x1b[31mred\\n")
print("password:", os.environ["PLAIN"], flush=True)
trainer.report(step=1, loss=0.5, note=os.environ["API_KEY"])
raise SystemExit(f"ValueError: cannot open with {os.environ['API_KEY']}")
"""


@pytest.mark.slow
def test_half_a_gigabyte_of_logs_a_hostile_line_and_secrets_everywhere(tmp_path: Path) -> None:
    planted = {name: secrets.token_hex(12) for name in ("file", "plain", "flag", "environ")}
    (tmp_path / "key").write_text(planted["file"])
    (tmp_path / "train.py").write_text(LOGS)
    spec = of_a_program(
        tasks={"worker": {"replicas": 1, "env": {"OTHER": planted["plain"]}}},
        program=["python", "train.py", "--api-token", planted["flag"], f"--auth-token={planted['flag']}"],
        code=["train.py"], secrets={"API_KEY": {"file": "key"}}, env={"PLAIN": planted["plain"]},
        kubernetes={"annotations": {"note": planted["plain"]}},
    )  # fmt: skip
    with Job(tmp_path, spec, environ={"AWS_SECRET_ACCESS_KEY": planted["environ"]}) as job:
        assert job.wait(300) == Exit.PROGRAM, job.output[-1000:]
    logs = layout.logs(job.model_dir)
    kept = [(logs / name).stat().st_size for name in ("worker-0.log", "worker-0.1.log")]
    assert sum(kept) < 33 << 20, "what a task writes has a limit"
    with (logs / "other.log").open("wb") as file:  # of a task that was started by hand
        for number in range(500):
            file.write(b"".join(b"%07d %s\n" % (number * 5_000 + line, b"x" * 200) for line in range(5_000)))
    (job.model_dir / "notes.txt").write_text(f"a file of the program with {planted['environ']}\n")
    path = tmp_path / "job.yaml"
    begun = time.monotonic()
    found = Debugged(tmp_path, path, environ={"AWS_SECRET_ACCESS_KEY": planted["environ"]})
    assert time.monotonic() - begun < 120, "it reads the ends only"
    for name, content in found.files.items():
        for kind, value in planted.items():
            assert value.encode() not in content, (kind, name)
    assert planted["file"] not in found.printed
    large = found.text("model_dir/logs/other.log.txt")
    assert large.startswith("0000000 xxx")
    assert re.search(r"\[ trainer debug: left out here: 5\d\d,\d{3},\d{3} of 5\d\d,\d{3},\d{3} bytes \]", large)
    log = found.text("model_dir/logs/worker-0.log.txt")
    assert "[hidden: API_KEY] the last" in log
    assert "\\x1b[31mred" in log
    assert sum(map(len, found.files.values())) < 20 << 20
    assert b"<script>" not in found.files["index.html"]
    assert "worker:0: " in found.headline
    assert "ValueError: cannot open with [hidden: API_KEY]" in found.headline


def test_a_model_dir_of_an_earlier_version(tmp_path: Path) -> None:
    """As version 0.1 has left it: result.json without a version and with another name of the key."""
    (tmp_path / "run" / "checkpoints" / "step-00000005").mkdir(parents=True)
    (tmp_path / "run" / ".lock").touch()
    (tmp_path / "run" / "result.json").write_text(
        json.dumps({
            "status": "succeeded", "job": "old", "strategy": "one_device", "steps": 5, "test_loss": 1.5, "seconds": 9.0,
            "examples_per_second": 10.0, "seconds_to_first_step": 2.0, "generations": 1, "tasks": {}, "fits": {"a": 1},
            "spec": {"name": "old", "strategy": "of another time", "env": {"API_KEY": "0123456789abc"}},
        })
    )  # fmt: skip
    (tmp_path / "run" / "checkpoints" / "step-00000005" / "meta.json").write_text('{"step": 5, "fits": {}}')
    found = Debugged(tmp_path, tmp_path / "run")
    assert found.headline == "old succeeded"
    assert "model_dir/checkpoints/step-00000005/meta.json" in found.files
    assert "0123456789abc" not in found.text("model_dir/result.json")
    newer = json.loads((tmp_path / "run" / "result.json").read_text())
    (tmp_path / "run" / "result.json").write_text(json.dumps({**newer, "version": 99}))
    found = Debugged(tmp_path, tmp_path / "run")
    assert "version: 99: this trainer reads versions up to 1" in found.page


@pytest.mark.slow
def test_a_job_that_runs_and_the_command_of_the_documentation(tmp_path: Path) -> None:
    words = next(w for w in commands("trainer", "docs/debugging.md") if w[2].startswith("runs/"))
    with Job(tmp_path, mirrored(steps=30_000, workload=PACED)) as job:
        job.until_step(5)
        os.kill(job.pid("worker:1"), signal.SIGKILL)
        job.until_formed_again(1)
        found = Debugged(tmp_path, *(str(job.model_dir) if word == words[2] else word for word in words[2:]))
    assert re.match(
        r"digits runs \(running\); before that worker:1(: child)? lost \(killed by SIGKILL\)", found.headline
    )
    assert json.loads(found.text("status.json"))["phase"] == "running"
    assert "worker:0" in found.text("stacks/now.txt")
    assert {"model_dir/state.json", "model_dir/logs/output.log.txt", "machine.json", "spec.json"} - {
        "spec.json"
    } <= set(found.files)
