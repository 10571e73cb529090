"""Programs of the user's own: what a death means, who is named as its cause, and how the job ends.

The programs here need no TensorFlow; those of examples/programs have tests of their own.
"""

from __future__ import annotations

import json
import os
import re
import signal
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.tools.harness import Job, alive
from trainer.job.errors import Exit
from trainer.model_dir import layout

PROGRAM = Path(__file__).parent / "programs" / "obedient.py"
UNAVAILABLE = """
class UnavailableError(Exception):
    __module__ = "tensorflow.python.framework.errors_impl"
raise UnavailableError("Collective ops is aborted by: recvmsg:Connection reset by peer")
"""


class Obedient(Job):
    """A job whose programs execute what `order` writes for them."""

    def __init__(self, folder: Path, tasks: dict[str, Any], **more: Any) -> None:
        self.orders = folder / "orders"
        self.orders.mkdir(exist_ok=True)
        before: dict[str, str] = more.pop("before", {})
        deadlines = {"start": 20, "rejoin": 20, "stop": 4, **more.pop("deadlines", {})}
        spec = {
            "name": "obedient",
            "strategy": "multi_worker_mirrored",
            "program": ["python", str(PROGRAM)],
            "env": {"ORDERS": str(self.orders)},
            "tasks": tasks,
            "deadlines": deadlines,
            **more,
        }
        super().__init__(folder, spec)
        for name, text in before.items():
            (self.model_dir / name).parent.mkdir(parents=True, exist_ok=True)
            (self.model_dir / name).write_text(text)

    def __enter__(self) -> Obedient:
        super().__enter__()
        return self

    def order(self, task: str, text: str, generation: int = 1) -> None:
        self.until_started(task, generation)
        new = self.orders / "new"
        new.write_text(textwrap.dedent(text))
        new.rename(self.orders / f"{task}.{generation}")

    def until_started(self, task: str, generation: int = 1) -> int:
        """The process of a task's program in this generation."""
        path, deadline = self.orders / f"{task}.{generation}.started", time.monotonic() + 40
        while not path.exists() or not path.read_text():
            assert not self.over(), self.output
            assert time.monotonic() < deadline, f"{path.name}\n{self.output}"
            time.sleep(0.02)
        return int(path.read_text())

    def until_gone(self, pid: int, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while alive(pid):
            assert time.monotonic() < deadline, f"{pid} is alive\n{self.output}"
            time.sleep(0.02)

    def events(self) -> list[str]:
        return [each["text"] for each in self.status().get("events", [])]

    def verdict(self) -> str:
        return self.lines[-1]


Start = Callable[..., Obedient]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    def make(tasks: dict[str, Any], **more: Any) -> Obedient:
        return Obedient(tmp_path, tasks, **more)

    return make


def test_every_task_gets_its_own_tf_config_and_the_documented_variables(start: Start, tmp_path: Path) -> None:
    code = """
    import sys
    found = {"argv": sys.argv[1:], "config": json.loads(os.environ["TF_CONFIG"]), "cwd": os.getcwd()}
    keys = ("TRAINER_MODEL_DIR", "TRAINER_GENERATION", "TRAINER_DATA_TRAIN", "RATE", "BOTH", "REFERENCE")
    keys += ("TRAINER_TASK_TYPE", "TRAINER_TASK_INDEX", "TRAINER_PS_HOSTS", "TRAINER_WORKER_HOSTS")
    found |= {key: os.environ.get(key) for key in keys}
    found["internal"] = [key for key in os.environ if key in ("TRAINER_JOB", "TRAINER_SECRET", "TRAINER_SET")]
    (place / f"found-{name}").write_text(json.dumps(found))
    """
    orders = str(tmp_path / "orders")
    with start(
        {"chief": 1, "worker": {"replicas": 2, "env": {"BOTH": "worker"}}, "evaluator": 1},
        program=["python", str(PROGRAM), "--dir=$(TRAINER_MODEL_DIR)", "$(TASK_INDEX)", "$$(RATE)", "ü $(RATE)"],
        env={"ORDERS": orders, "RATE": "0.1", "BOTH": "all", "REFERENCE": "$(TRAINER_MODEL_DIR)/x"},
        data={"train": {"path": str(tmp_path)}},
    ) as job:
        tasks = ["chief:0", "worker:0", "worker:1", "evaluator:0"]
        for task in [*tasks[1:], tasks[0]]:
            job.order(task, code)
        assert job.wait() == 0, job.output
    found = {task: json.loads((job.orders / f"found-{task}.1").read_text()) for task in tasks}
    cluster = found["chief:0"]["config"]["cluster"]
    assert {name: len(addresses) for name, addresses in cluster.items()} == {"chief": 1, "worker": 2}
    for task, own in found.items():
        assert own["config"] == {
            "cluster": cluster,
            "task": {"type": task.partition(":")[0], "index": int(task.partition(":")[2])},
        }
        model_dir = str(job.model_dir)
        assert own["argv"] == [f"--dir={model_dir}", "$(TASK_INDEX)", "$(RATE)", "ü 0.1"]
        assert f"{own['TRAINER_TASK_TYPE']}:{own['TRAINER_TASK_INDEX']}" == task
        assert (own["TRAINER_PS_HOSTS"], own["TRAINER_WORKER_HOSTS"]) == ("", ",".join(cluster["worker"]))
        assert own["cwd"] == str(tmp_path)
        assert (own["TRAINER_MODEL_DIR"], own["TRAINER_GENERATION"], own["RATE"]) == (model_dir, "1", "0.1")
        assert (own["TRAINER_DATA_TRAIN"], own["REFERENCE"]) == (str(tmp_path), f"{model_dir}/x")
        assert own["BOTH"] == ("worker" if task.startswith("worker") else "all")
        assert own["internal"] == []
    assert job.result()["status"] == "succeeded"
    warning = "$(TASK_INDEX): there is no such variable, so the text stays as it is; did you mean TRAINER_TASK_INDEX?"
    assert warning in job.output


def test_a_killed_program_starts_all_again_and_is_named(start: Start) -> None:
    with start({"chief": 1, "worker": 2, "evaluator": 1}) as job:
        pids = {task: job.until_started(task) for task in ("chief:0", "worker:0", "worker:1", "evaluator:0")}
        log = 'import signal, sys\nprint("}", file=sys.stderr, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)'
        job.order("worker:1", log)
        # As TensorFlow's peers do, but before the supervisor of the killed one could report.
        job.order("chief:0", UNAVAILABLE)
        for task in ("chief:0", "worker:0", "worker:1"):
            assert job.until_started(task, 2) != pids[task]
        assert alive(pids["evaluator:0"]), "an evaluator has no part in generations"
        assert "worker:1 lost (killed by SIGKILL), re-forming" in job.events()
        assert [text for text in job.events() if "lost" in text] == ["worker:1 lost (killed by SIGKILL), re-forming"]
        job.order("evaluator:0", "raise SystemExit(0)")
        job.order("chief:0", "raise SystemExit(0)", 2)
        assert job.wait() == 0, job.output
    assert job.result()["generations"] == 2


FAILS_AT_THE_END = """
while not (Path(os.environ["TRAINER_MODEL_DIR"]) / ".trainer/result.json").exists():
    time.sleep(0.02)
(place / "tries").open("a").write("x")
if len((place / "tries").read_text()) < {tries}:
    raise ValueError("checkpoint 600 is gone")
"""


def test_an_evaluator_that_fails_after_the_chief_is_done_is_started_again(start: Start) -> None:
    with start({"chief": 1, "evaluator": 1}) as job:
        job.order("evaluator:0", FAILS_AT_THE_END.format(tries=2))
        job.order("chief:0", "")
        assert job.wait() == 0, job.output
        assert (job.orders / "tries").read_text() == "xx"
    assert job.result()["warnings"] == []
    assert "exit code 17" not in job.output


def test_an_evaluator_that_always_fails_leaves_a_warning_in_the_result(start: Start) -> None:
    with start({"chief": 1, "evaluator": 1}, max_restarts=1) as job:
        job.order("evaluator:0", FAILS_AT_THE_END.format(tries=9))
        job.order("chief:0", "")
        assert job.wait() == 0, job.output
        assert (job.orders / "tries").read_text() == "xx"
    (warning,) = job.result()["warnings"]
    assert warning.startswith("evaluator:0: its program exited with code 1: ValueError: checkpoint 600 is gone")
    assert "evaluator:0 ended with exit code 17" in job.output


def test_the_first_failure_ends_the_job_and_is_named_with_its_line(start: Start) -> None:
    with start({"chief": 1, "worker": 2}) as job:
        for task in ("chief:0", "worker:0", "worker:1"):
            job.until_started(task)
        job.order("chief:0", UNAVAILABLE)
        job.order("worker:0", UNAVAILABLE)
        job.order("worker:1", 'def load():\n    raise ValueError("3 columns, not 4")\nload()')
        assert job.wait() == Exit.PROGRAM, job.output
    wanted = "worker:1: its program exited with code 1: ValueError: 3 columns, not 4 (orders/worker:1.1:2 in load)"
    assert f"trainer: {wanted}" in job.output, job.output
    assert "worker:1" in job.verdict(), job.verdict()
    assert "generation 2" not in job.output


@pytest.mark.slow
def test_an_error_that_a_lost_peer_may_cause_is_the_task_s_own_once_it_repeats(start: Start) -> None:
    with start({"worker": 2}) as job:
        for generation in (1, 2):
            job.until_started("worker:0", generation)
            job.order("worker:1", UNAVAILABLE, generation)
        assert job.wait() == Exit.PROGRAM, job.output
    assert "worker:1: its program exited with code 1: tensorflow" in job.output
    assert "(twice, and no other task was lost)" in job.output


def test_under_parameter_server_a_worker_is_started_alone_and_a_ps_restarts_all(start: Start) -> None:
    with start({"ps": 1, "worker": 3}, strategy="parameter_server") as job:
        tasks = ("worker:0", "worker:1", "worker:2", "ps:0")
        pids = {task: job.until_started(task) for task in tasks}
        started = job.orders / "worker:2.1.started"
        started.unlink()
        os.kill(pids["worker:2"], signal.SIGSEGV)
        assert job.until_started("worker:2") != pids["worker:2"]
        assert all(alive(pids[task]) for task in tasks if task != "worker:2")
        assert any("worker:2 lost (killed by SIGSEGV); the others continue" in text for text in job.events())
        os.kill(pids["ps:0"], signal.SIGKILL)
        for task in tasks:
            job.until_started(task, 2)
        os.kill(job.until_started("worker:0", 2), signal.SIGKILL)  # without a chief it is the chief
        for task in tasks:
            job.until_started(task, 3)
        job.order("worker:1", "raise SystemExit(0)", 3)  # before the chief: fine
        job.order("worker:0", "raise SystemExit(0)", 3)
        assert job.wait() == 0, job.output
    assert job.result()["generations"] == 3
    assert "worker:2: the job is done, and its program still runs: it is stopped" in job.output


def test_all_workers_must_succeed_where_the_spec_asks_for_it(start: Start) -> None:
    with start({"chief": 1, "worker": 2}, success="all_workers") as job:
        pid = job.until_started("worker:1")
        job.order("chief:0", "raise SystemExit(0)")
        job.order("worker:0", "raise SystemExit(0)")
        job.until("the others are done", lambda s: [t for t, r in s["tasks"].items() if r["state"] == "done"] == [
            "chief:0", "worker:0"
        ])  # fmt: skip
        assert alive(pid)
        job.order("worker:1", "raise SystemExit(4)")
        assert job.wait() == Exit.PROGRAM, job.output
    assert "worker:1: its program exited with code 4" in job.output


def test_without_resume_a_loss_ends_the_job(start: Start) -> None:
    with start({"worker": 2}, resume="none") as job:
        os.kill(job.until_started("worker:1"), signal.SIGKILL)
        assert job.wait() == Exit.GAVE_UP, job.output
    assert "worker:1 lost (killed by SIGKILL), and the program does not resume (resume: none)" in job.output


def test_a_job_that_takes_too_long_ends(start: Start) -> None:
    with start({"worker": 1}, deadlines={"job": 3}) as job:
        pid = job.until_started("worker:0")
        assert job.wait() == Exit.OVERDUE, job.output
        assert not alive(pid)
    assert "the job has taken longer than 3 s (deadlines.job)" in job.output


def test_programs_that_do_not_end_are_killed_with_all_that_they_started(start: Start) -> None:
    stubborn = """
    import signal, subprocess, sys
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.close(1)
    away = subprocess.Popen(["setsid", "sleep", "600"], stdout=subprocess.DEVNULL)
    (place / f"{name}.away").write_text(str(away.pid))
    time.sleep(600)
    """
    with start({"chief": 1, "worker": 1}, deadlines={"stop": 2}) as job:
        pid = job.until_started("worker:0")
        job.order("worker:0", stubborn)
        path, deadline = job.orders / "worker:0.1.away", time.monotonic() + 20
        while not path.exists() or not path.read_text():
            assert time.monotonic() < deadline
            time.sleep(0.02)
        away = int(path.read_text())
        assert alive(away)
        job.order("chief:0", "raise SystemExit(0)")
        assert job.wait() == 0, job.output
        job.until_gone(pid, 1)
        job.until_gone(away, 1)


OWN = ("history.json", "result.json", "state.json", "lease.json", "spec.json", "journal.jsonl", "logs/worker-0.log")
"""Names of files of trainer that a program has for files of its own."""


def test_a_stop_reaches_the_programs_and_their_exit_code_does_not_count(start: Start) -> None:
    saves = f"""
    folder = Path(os.environ["TRAINER_MODEL_DIR"])
    for each in {OWN[:4]}:
        (folder / each).write_text("of the program")
    """
    saves += """
    import signal, sys
    def stop(*_):
        (place / f"{name}.saved").write_text("x")
        sys.exit(0)
    signal.signal(signal.SIGTERM, stop)
    (place / f"{name}.ready").write_text("x")
    time.sleep(600)
    """
    earlier = dict.fromkeys((*OWN[4:], ".lock"), "of the user, before the job")
    with start({"chief": 1, "worker": 1}, before=earlier) as job:
        for task in ("chief:0", "worker:0"):
            job.order(task, saves)
        deadline = time.monotonic() + 20
        while not all((job.orders / f"{task}.1.ready").exists() for task in ("chief:0", "worker:0")):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        job.process.send_signal(signal.SIGTERM)
        assert job.wait() == Exit.STOPPED, job.output
    assert all((job.orders / f"{task}.1.saved").exists() for task in ("chief:0", "worker:0"))
    assert not layout.result(job.model_dir).exists()
    assert "the same command starts the program again" in job.verdict()
    with start({"chief": 1, "worker": 1}) as again:
        again.order("chief:0", "raise SystemExit(0)", 2)
        assert again.wait() == Exit.OK, again.output
    assert (again.result()["status"], again.result()["generations"]) == ("succeeded", 2)
    mine = {**earlier, **dict.fromkeys(OWN[:4], "of the program")}
    assert {name: (again.model_dir / name).read_text() for name in mine} == mine
    assert {path.name for path in again.model_dir.iterdir()} == {name.partition("/")[0] for name in mine} | {".trainer"}


def test_a_line_of_100_megabytes_is_no_trouble(start: Start) -> None:
    code = """
    import sys
    for _ in range(100):
        os.write(2, b"x" * 1_000_000)
    os.write(2, b"\\nlast line\\n")
    raise SystemExit(5)
    """
    with start({"worker": 1}) as job:
        job.order("worker:0", code)
        assert job.wait() == Exit.PROGRAM, job.output[-1000:]
    assert "worker:0: its program exited with code 5: last line" in job.lines[-2]
    assert max(map(len, job.lines)) < 2_000_000


def test_a_program_that_takes_the_control_port_is_named(start: Start) -> None:
    code = """
    import socket
    host, port = json.loads(os.environ["TF_CONFIG"])["cluster"]["worker"][1].split(":")
    socket.socket().bind((host, int(port) + 1000))
    """
    with start({"worker": 2}) as job:
        job.order("worker:1", "import json\n" + textwrap.dedent(code))
        assert job.wait() == Exit.PROGRAM, job.output
    assert re.search(r"worker:1: its program exited with code 1: OSError: .*Address already in use", job.output)


def test_generations_without_progress_are_counted_by_files_and_printed_steps(start: Start) -> None:
    """Each generation dies; those that write something new or print a higher step do not count, logs and events do."""
    dies = "import os, signal\n{}\nos.kill(os.getpid(), signal.SIGKILL)"
    write = 'from pathlib import Path\nfolder = Path(os.environ["TRAINER_MODEL_DIR"])\n(folder / "{}").write_text("{}")'
    with start({"worker": 1}, max_restarts=1) as job:
        for generation, text in enumerate(
            [
                dies.format(write.format("ckpt", "step 1")),
                dies.format(write.format("ckpt", "step 2")),
                dies.format(write.format("ckpt", "step 3")),
                dies.format('print("step 4", flush=True)'),
                dies.format('print("step 5", flush=True)'),
                dies.format(write.format("events.out.tfevents.4", "x")),
                dies.format(write.format("train.log", "x")),
            ],
            1,
        ):
            job.order("worker:0", text, generation)
        assert job.wait() == Exit.GAVE_UP, job.output
    assert job.output.count("re-forming") == 7


@pytest.mark.slow
def test_reports_are_the_status_and_the_result_and_silence_after_them_is_a_hang(start: Start) -> None:
    trains = """
    import trainer
    for step in range(int(os.environ["TRAINER_GENERATION"]) * 10, 100):
        trainer.report(step=step, total=200, loss=1 / (1 + step), note="a\\u00fcb", examples_per_second=5.0)
        time.sleep(0.15 if step > 97 else 0.001)
    {}
    """
    with start({"chief": 1, "worker": 1}, deadlines={"progress": 3}) as job:
        job.order("chief:0", trains.format("while True: time.sleep(1)"))
        status = job.until("step 99 of 200", lambda s: (s.get("step"), s.get("steps")) == (99, 200))
        assert status["figures"] == {"loss": 0.01, "note": "aüb", "examples_per_second": 5.0}
        row = status["tasks"]["chief:0"]
        assert (row["step"], row["steps"]) == (99, 200)
        # The worker never reports: its silence means nothing.
        job.order("chief:0", trains.format("trainer.report(step=200, loss=0.5)"), 2)
        assert job.wait() == 0, job.output
    lost = r"chief:0 lost \(no report for 3 s \(deadlines\.progress\); it is .*at \S+:\d+ .*\), re-forming"
    assert re.search(lost, job.output), job.output
    result = job.result()
    assert (result["steps"], result["reported"]["loss"], result["generations"]) == (200, 0.5, 2)
    assert result["seconds_to_first_step"] > 0


def test_the_program_of_a_killed_supervisor_is_ended_before_it_starts_again(start: Start) -> None:
    with start({"worker": 2}) as job:
        program = job.until_started("worker:1")
        job.signal("worker:1", "pid")
        job.until_started("worker:1", 2)
        assert not alive(program)
        job.order("worker:0", "raise SystemExit(0)", 2)
        assert job.wait() == 0, job.output
