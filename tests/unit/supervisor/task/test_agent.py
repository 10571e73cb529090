"""How a supervisor manages its children, with real ones that fail at once: their job is `{}`."""

import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path

import pytest

from trainer import host
from trainer.job import environment
from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit, UserError
from trainer.job.load import build
from trainer.model_dir import layout
from trainer.model_dir.files import read_json, write_json
from trainer.protocol.events import Step
from trainer.protocol.facts import Cause, Loss
from trainer.protocol.reports import Reply
from trainer.supervisor.children import standby
from trainer.supervisor.children.child import Child
from trainer.supervisor.task import agent as agent_module
from trainer.supervisor.task import program_end
from trainer.supervisor.task.agent import Agent
from trainer.supervisor.task.task_report import make_report

SPEC = build({"name": "j", "strategy": "one_device"})


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Agent:
    """A supervisor whose child has trained for long enough to get a standby."""
    monkeypatch.setenv(environment.JOB, "{}")
    monkeypatch.setattr(standby, "STEADY_SECONDS", 0.0)
    agent = Agent(SPEC, tasks_of(SPEC)[0], tmp_path / "worker-0.log")
    agent.running = Child(agent.task, agent._on_child)
    agent.phase, agent.first_step_at = "running", time.monotonic() - 1
    return agent


def test_a_standby_that_fails_is_logged_and_not_restarted_forever(
    training: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> int:
        started = 0
        for _ in range(standby.FAILURES + 2):
            await training.look_after_children()
            if training.standby.child is not None:
                started += 1
                await training.standby.child.ended()
        return started

    assert asyncio.run(asyncio.wait_for(run(), 60)) == standby.FAILURES
    *lost, last = capsys.readouterr().out.splitlines()
    assert len(lost) == standby.FAILURES
    assert all(line.startswith("worker:0: standby lost (") and "TRAINER_JOB: name: null: is required" in line
               for line in lost)  # fmt: skip
    assert all(line.endswith(f"its log: {training.log}") for line in lost)
    assert last == "worker:0: 3 standbys were lost in a row; training continues without one"
    assert training.loss is None, "training goes on"


CHILD = """
import json, os, socket, sys
events = os.fdopen(int(os.environ["TRAINER_EVENTS_FD"]), "w", buffering=1)
listener = socket.socket(fileno=int(os.environ["TRAINER_GRADIENTS_FD"]))
go = json.loads(sys.stdin.readline())["go"]
text = f"{listener.getsockname()[1]} {go['ring']['following']} {go['ring']['key']}"
print(json.dumps({"event": "line", "text": text}), file=events)
sys.stdin.readline()
"""


def test_children_of_a_ring_listen_at_one_port_and_get_another_key_in_each_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has the job's secret knows the key; whose chief is another one, or of an earlier lease, has another key."""
    monkeypatch.setattr(host, "command", lambda _: [sys.executable, "-c", CHILD])
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, "warm_standby": False})
    tasks = tasks_of(spec, lambda kind, index: f"127.0.0.1:{2222 + index}")

    async def run(agent: Agent, *replies: Reply) -> int:
        await agent.prepare_child()
        for reply in replies:
            before = len(heard)
            await agent.act(reply)
            while len(heard) == before:
                await agent.wait_for_change(1)
        port = make_report(agent).gradients
        await agent.end_children()
        return port

    heard: list[str] = []
    monkeypatch.setattr(agent_module, "log_line", heard.append)
    replies = [Reply("running", 1, 0, 1, following=4000, term=5), Reply("running", 2, 0, 2, following=4001, term=5),
               Reply("running", 2, 0, 3, following=4001, term=6)]  # fmt: skip
    ports = [
        asyncio.run(asyncio.wait_for(run(Agent(spec, task, tmp_path / "log", secret), *given), 60))
        for task, secret, given in [
            (tasks[0], b"s", replies[:2]), (tasks[1], b"s", replies[:1]), (tasks[1], b"s", replies[2:]),
            (tasks[1], b"t", replies[:1]),
        ]
    ]  # fmt: skip
    words = [line.split() for line in heard]
    assert [int(port) for port, _, _ in words] == [ports[0], *ports]
    assert [int(following) for _, following, _ in words] == [4000, 4001, 4000, 4001, 4000]
    keys = [key for _, _, key in words]
    assert keys[0] == keys[2]
    assert len(set(keys)) == 4


def test_after_a_standby_failed_the_next_one_waits(training: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby, "STEADY_SECONDS", 0.5)

    async def run() -> None:
        await training.look_after_children()
        assert training.standby.child is not None
        await training.standby.child.ended()
        await training.look_after_children()
        assert training.standby.child is None

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_server_gets_a_standby_once_its_chief_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(environment.JOB, "{}")
    monkeypatch.setattr(standby, "STEADY_SECONDS", 0.0)
    spec = build({"name": "j", "strategy": "parameter_server", "tasks": {"worker": 2, "ps": 1}})
    server = next(task for task in tasks_of(spec) if task.type == "ps")

    async def after(step: int) -> bool:
        agent = Agent(spec, server, tmp_path / "ps-0.log")
        agent.running = Child(server, agent._on_child)
        agent.running.generation = 2
        await agent.act(Reply("running", 2, 30, 1, step=step))
        if (child := agent.standby.child) is None:
            return False
        await child.dismiss()
        return True

    async def run() -> list[bool]:
        return [await after(0), await after(30), await after(31)]

    assert asyncio.run(asyncio.wait_for(run(), 60)) == [False, False, True]


def test_a_child_that_cannot_be_started_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    agent = Agent(SPEC, tasks_of(SPEC)[0], tmp_path / "gone" / "worker-0.log")
    with pytest.raises(UserError, match=r"worker:0: .*gone/worker-0.log: No such file or directory; look at"):
        asyncio.run(agent.go(1, 0))
    assert list(tmp_path.iterdir()) == [], "nor is its temporary folder left"


def test_an_evaluator_s_program_that_cannot_be_started_is_tried_a_few_times_and_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(agent_module, "BACKOFF_SECONDS", (0.0, 60.0))
    monkeypatch.setattr(program_end, "PROGRAM_POLL_SECONDS", 0.01)
    (tmp_path / "score").write_text("no script\n")
    (tmp_path / "score").chmod(0o755)
    tasks = {"worker": 1, "evaluator": {"replicas": 1, "program": [str(tmp_path / "score")]}}
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "program": ["true"], "tasks": tasks, "code": [],
                  "max_restarts": 3, "working_dir": str(tmp_path), "model_dir": str(tmp_path)})  # fmt: skip
    write_json(layout.result(spec.directory), {"status": "succeeded", "warnings": []})

    async def run() -> Exit:
        agent = Agent(spec, tasks_of(spec)[-1], tmp_path / "log")
        for _ in range(10):
            await agent.act(Reply("running", 1, 0, 1))
        assert agent.restarts == 1, "the second attempt is at once, the third is not"
        loss = make_report(agent).loss
        assert loss is not None
        assert (loss.cause, loss.ends_the_job) == (Cause.NOT_STARTED, False)
        assert str(loss).startswith("could not be started: program: ")
        assert not agent.changed.is_set(), "it would report again at once"
        monkeypatch.setattr(agent_module, "BACKOFF_SECONDS", (0.0,))
        agent._retry_at = 0.0
        return await program_end.end(agent, 1)

    files = len(list(Path("/proc/self/fd").iterdir()))
    assert asyncio.run(asyncio.wait_for(run(), 30)) == Exit.EVALUATION
    assert len(list(Path("/proc/self/fd").iterdir())) == files
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 4
    warnings = read_json(layout.result(spec.directory))["warnings"]
    assert isinstance(warnings, list)
    (warning,) = warnings
    assert warning.startswith("evaluator:0: its program could not be started: program: ")
    assert err == f"trainer: {warning}; the result of the training is valid\n"


@pytest.mark.parametrize(
    ("text", "message"), [("x = 1\n", None), ("x = 2\n", "workload: beside.py changed while the job ran")]
)
def test_a_file_that_was_edited_until_the_first_step_fails_the_task(
    tmp_path: Path, text: str, message: str | None
) -> None:
    (tmp_path / "mine.py").write_text("def model(): ...\ndef data(shard):\n    import beside\n")
    (tmp_path / "beside.py").write_text("x = 1\n")
    spec = build({"name": "j", "strategy": "one_device", "workload": str(tmp_path / "mine.py")})
    agent = Agent(spec, tasks_of(spec)[0], tmp_path / "worker-0.log")
    agent.running = Child(agent.task, agent._on_child)
    (tmp_path / "beside.py").write_text(text)
    agent._on_child(agent.running, Step(1))
    loss = make_report(agent).loss
    assert (loss is None) == (message is None)
    assert loss is None or (loss.cause is Cause.ERROR and loss.code == Exit.USER and str(loss).startswith(str(message)))


def test_a_failure_of_the_task_is_not_replaced_by_how_its_child_ends(tmp_path: Path) -> None:
    agent = Agent(SPEC, tasks_of(SPEC)[0], tmp_path / "log")
    child = agent.running = Child(agent.task, agent._on_child)
    child.generation, child.exit = 1, -signal.SIGKILL
    agent._child_ended(child)
    assert make_report(agent).loss == Loss(Cause.KILLED, signal="SIGKILL")
    agent.fail(UserError("workload: mine.py changed while the job ran"))
    agent._child_ended(child)
    loss = make_report(agent).loss
    assert str(loss) == "workload: mine.py changed while the job ran"
    assert loss is not None
    assert loss.ends_the_job


def test_a_program_has_ended_before_that_of_the_next_generation_begins(tmp_path: Path) -> None:
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "program": ["sleep", "100"], "code": [],
                  "tasks": {"worker": 2}, "working_dir": str(tmp_path), "model_dir": str(tmp_path)})  # fmt: skip

    async def run() -> list[int]:
        agent, generations = Agent(spec, tasks_of(spec)[1], tmp_path / "log"), list[int]()
        for _ in range(2):
            await agent.act(Reply("running", len(generations) + 1, 0, 1))
            assert agent.running is not None
            generations.append(agent.running.generation)
        first = agent.running
        assert first is not None
        assert first.dismissed, "it is asked to end, and not waited for"
        await first.ended()
        await agent.act(Reply("running", 2, 0, 1))
        assert agent.running is not None
        generations.append(agent.running.generation)
        await agent.end_children()
        return generations

    assert asyncio.run(asyncio.wait_for(run(), 30)) == [1, 1, 2]
