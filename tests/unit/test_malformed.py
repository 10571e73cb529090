"""10,000 malformed documents against every parser: each is refused or understood; no traceback, and no success."""

from __future__ import annotations

import asyncio
import copy
import functools
import io
import json
import math
import os
import queue
import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from trainer.job import environment, load, secret, tf_config
from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit, UserError
from trainer.job.spec import JobSpec
from trainer.model_dir import arrays, checkpoint, checkpoint_meta, compatibility, layout
from trainer.model_dir import result as results
from trainer.model_dir import state as job_state
from trainer.model_dir.files import json_text, read_json
from trainer.protocol import events, reports
from trainer.protocol.child import ChildStatus
from trainer.protocol.facts import Cause, Loss
from trainer.protocol.orders import Final, Go
from trainer.protocol.reports import Identity, Reply, Report
from trainer.protocol.status import read as read_status
from trainer.supervisor import restart_guard
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.children.child import Child
from trainer.supervisor.children.process import Process
from trainer.supervisor.control_port import peers, server
from trainer.supervisor.main import metrics_text
from trainer.supervisor.metrics.usage import Meter
from trainer.supervisor.rendezvous.state_machine import Rendezvous
from trainer.supervisor.task.agent import Agent
from trainer.supervisor.task.task_report import make_report
from trainer.targets.base import ContainerState, JobOverview
from trainer.targets.show import summary, table
from trainer.targets.show.overview import describe
from trainer.training.runtime import channel
from trainer.workloads.check import check_workload
from trainer.workloads.digests import digest

pytestmark = pytest.mark.part("properties")

SEED = int(os.environ.get("MALFORMED_SEED") or random.randrange(2**32))
TIMES = int(os.environ.get("MALFORMED_TIMES") or 1)
HOST = "127.0.0.1"
IDENTITY = Identity("j", "worker:1", "a")

JUNK: list[Any] = [
    None, True, False, 0, -1, 1, 3, 2**31, 2**63, 10**400, 0.5, -0.0, 1e308, math.nan, math.inf, -math.inf,
    "", " ", "0", "done", "worker:0", "\0", "\x1b[2J", "a\nb", "\u2028", "\ud800", "\u0663", "../../x", "n" * 5000,
    [], {}, [[]], {"": None}, [0, "x"], {"a": {"b": [1]}}, [[[[[[[[[[]]]]]]]]]], list(range(500)),
    {str(i): i for i in range(600)},
]  # fmt: skip
NAMES = ["state", "phase", "code", "step", "task", "event", "exit", "cluster", "__class__", "", "\0", "x" * 300]


class Dice(random.Random):
    """Draws documents that are nearly right."""

    def spoil(self, document: Any) -> Any:
        """A copy of a JSON document with one to three places changed."""
        document = copy.deepcopy(document)
        for _ in range(self.randint(1, 3)):
            document = self._spoil_once(document)
        return document

    def _spoil_once(self, document: Any) -> Any:
        if not isinstance(document, (dict, list)) or not document or self.random() < 0.02:
            return copy.deepcopy(self.choice(JUNK))
        keys = list(document) if isinstance(document, dict) else range(len(document))
        key = self.choice(list(keys))
        if isinstance(document[key], (dict, list)) and document[key] and self.random() < 0.7:
            document[key] = self._spoil_once(document[key])
        elif (way := self.random()) < 0.6:
            document[key] = copy.deepcopy(self.choice(JUNK))
        elif way < 0.75:
            del document[key]
        elif isinstance(document, dict):
            document[self.choice(NAMES)] = document[key] if way < 0.9 else copy.deepcopy(self.choice(JUNK))
        else:
            document.append(document[key])
        return document

    def damage(self, data: bytes) -> bytes:
        """Bytes that were cut, doubled, or changed in some places."""
        data = bytearray(data)  # type: ignore[assignment]
        for _ in range(self.randint(1, 4)):
            place, way = self.randrange(len(data) + 1), self.random()
            if way < 0.2:
                data = data[:place]
            elif way < 0.5:
                data = (
                    data[:place]
                    + self.choice([b"\0", b"\xff", b'"', b"{", b"[" * 2000, b"NaN", b"\n", b"9" * 50])
                    + data[place:]
                )
            elif way < 0.8:
                data = data[:place] + bytes([self.randrange(256)]) + data[place + 1 :]
            else:
                data = data[:place] + data[self.randrange(len(data) + 1) :]
        return bytes(data)

    def document(self, good: Any) -> bytes:
        """JSON that is spoilt as a document, as bytes, or as both."""
        way = self.random()
        text = json.dumps(good if way < 0.3 else self.spoil(good)).encode()
        return text if 0.3 <= way < 0.85 else self.damage(text)


@pytest.fixture
def dice(request: pytest.FixtureRequest) -> Dice:
    print(f"MALFORMED_SEED={SEED}")
    return Dice(f"{SEED} {request.node.name}")


def spec_of(folder: Path, **more: Any) -> JobSpec:
    tasks = {"worker": 2, "evaluator": 1}
    return load.build(
        {"name": "j", "strategy": "multi_worker_mirrored", "tasks": tasks, "model_dir": str(folder), **more}
    )


@pytest.fixture
def chief(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Chief]:
    monkeypatch.setattr(peers, "HOLD_SECONDS", 0.0)
    spec = spec_of(tmp_path)
    chief = Chief(Agent(spec, tasks_of(spec)[0], Path(os.devnull)))
    chief._ready.set()
    yield chief
    chief._record.lock.close()


STATUS = ChildStatus(line="task=worker:1", step=3, figures={"loss": 0.5, "note": "x"})
LOSS = Loss(Cause.OUT_OF_MEMORY, "words", "x", 2, signal="SIGKILL", status=137, seconds=3, setting="x.y", memory=9)


def form(chief: Chief) -> Report:
    """Forms a new, running cluster and returns the other task's report."""
    chief._rendezvous = core = Rendezvous(chief._spec, chief._task, 0, 0.0)
    own = replace(make_report(chief._agent), loss=None, ended_early=0)
    other = replace(own, task="worker:1", incarnation="another", status=STATUS)
    for report in (own, other):
        core.report(report, 0.0)
        core.reachable(report.task, report.incarnation, None, 0.0)
    return replace(other, generation=1, loss=LOSS, restarted_for=LOSS, number=5)


def test_no_report_that_is_malformed_ends_a_job_well(
    dice: Dice, chief: Chief, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    seen = Counter[int]()

    async def run() -> None:
        good = {"report": asdict(form(chief)), "known": 0}
        scrape = functools.partial(metrics_text, chief._agent, Meter(chief._agent), chief.status)
        more = [server.report_route(chief.answer, chief.refuse), server.metrics_route(scrape)]
        opened = await server.serve(0, HOST, IDENTITY, lambda: chief.status().document(), more)
        address = f"http://{HOST}:{opened.number}"
        async with peers.client() as session:
            for number in range(2500 * TIMES):
                async with session.post(f"{address}/report", data=dice.document(good)) as response:
                    seen[response.status] += 1
                    text = await response.text()
                if response.status == 200:
                    assert json.loads(text)["phase"] != "done"
                assert chief._rendezvous.phase != "done"
                assert (chief._rendezvous.phase == "failed") == (chief._rendezvous.code != Exit.OK)
                if chief._rendezvous.phase == "failed" or number % 100 == 0:
                    for path in ("status", "metrics"):
                        async with session.get(f"{address}/{path}") as response:
                            assert response.status == 200
                    good["report"] = asdict(form(chief))
        await opened.close()

    asyncio.run(run())
    assert set(seen) == {200, 400}, seen
    assert min(seen.values()) > 20, seen
    assert caplog.messages == []
    out, err = capfd.readouterr()
    assert all(line.startswith("trainer: ") for line in err.split("\n")[:-1]), "failures that were reported"
    assert len(out.splitlines()) < 2000


def test_no_answer_of_a_chief_that_is_malformed_is_taken_for_one_that_makes_no_sense(dice: Dice) -> None:
    reply = asdict(Reply("running", 3, 500, 7, step=520))
    for _ in range(1500 * TIMES):
        for read, good in ((reports.read_answer, reply), (reports.read_identity, asdict(IDENTITY))):
            body = dice.document(good)
            try:
                found = read(body)
            except ValueError:
                continue
            if isinstance(found, Reply):
                assert (found.phase == "failed") == (Exit(found.code) != Exit.OK)


EVENTS: list[dict[str, Any]] = [
    {"event": "warm"}, {"event": "start", "step": 0, "steps": 100, "line": "task=worker:0"}, {"event": "traced"},
    {"event": "step", "step": 10, "figures": {"loss": 0.5, "accuracy": 0.9, "examples_per_second": 100.0}},
    {"event": "step", "step": 10, "workers": {"worker:0": {"step": 3, "accuracy": 0.1}}},
    {"event": "checkpoint", "step": 10, "stalled": 0.1}, {"event": "line", "text": "x"},
    {"event": "trained", "step": 1}, {"event": "stopped", "step": 7},
    {"event": "error", "code": 2, "message": "x"}, {"event": "peer_lost", "text": "x", "code": 1, "message": "y"},
    {"event": "scored", "step": 7, "figures": {"accuracy": 0.9}}, {"event": "finishing", "step": 100},
    {"event": "alive"},
    {"event": "exit"}, {"event": "error", "code": 0, "message": "all is well"},
]  # fmt: skip
DONE = {"event": "done", "step": 100, "test": {"accuracy": 0.9}, "examples_per_second": 100.0}


def test_no_event_that_is_malformed_ends_a_job_well(dice: Dice, chief: Chief) -> None:
    agent = chief._agent

    async def take(*lines: bytes) -> Child:
        form(chief)
        agent.loss, agent.phase = None, "running"
        child = agent.running = Child(agent.task, agent._on_child, agent.clock)
        child.generation, child.times["go"] = 1, 0.0
        child._process = Process()
        reader = child._process._events = asyncio.StreamReader(limit=events.EVENT_BYTES)
        reader.feed_data(b"\n".join([b'{"event": "warm"}', *lines, b'{"event": "line", "text": "the last"}\n']))
        reader.feed_eof()
        await child._read()
        child._process.close()
        return child

    async def run() -> None:
        for _ in range(400 * TIMES):
            good = dice.choices(EVENTS, k=4)
            child = await take(*(dice.document(event) for event in good))
            reports.read_question(reports.question(make_report(agent), 0))
            core = chief._rendezvous
            core.report(make_report(agent), 1.0)
            await chief._look_at_child(child)
            assert core.phase != "done"
            json_text(chief.status().document())
            child.exit, child.killed_for = 1, Loss(Cause.HANG, "the test ends it")
            agent._child_ended(child)
        for _ in range(300 * TIMES):
            spoilt = dice.document(DONE)
            child = await take(spoilt)
            await chief._look_at_child(child)
            if chief._rendezvous.phase == "done":
                result = read_json(layout.result(chief._directory))
                assert isinstance(result["steps"], int)
                assert result["status"] == "succeeded"

    asyncio.run(run())


def refused(read: Callable[..., Any], *arguments: Any, **more: Any) -> Any:
    """What was read; None if it was refused as a user's mistake has to be."""
    try:
        return read(*arguments, **more)
    except UserError as refusal:
        return None if refusal.problems and refusal.code else pytest.fail(f"no reason: {refusal!r}")


def test_every_tf_config_is_understood_or_refused(dice: Dice) -> None:
    outcomes = Counter[bool]()
    for _ in range(1500 * TIMES):
        spec = dice.choice(SPECS)
        good = json.loads(dice.choice(tasks_of(spec)).tf_config())
        text = dice.document(good).decode(errors="surrogateescape")
        task = refused(tf_config.from_environment, spec, {"TF_CONFIG": text})
        outcomes[task is not None] += 1
        if task is not None:
            assert task.members()
            assert task.name
    assert min(outcomes.values()) > 20, outcomes


SPECS = [
    load.build({"name": "j", "strategy": "parameter_server", "tasks": {"worker": 2, "ps": 1, "evaluator": 1}}),
    load.build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"chief": 1, "worker": 2}}),
    load.build({"name": "j", "strategy": "graph", "workload": "sum", "tasks": {"worker": 2}}),
]
RAW: dict[str, Any] = {
    "name": "j", "strategy": "parameter_server", "tasks": {"ps": 1, "worker": {"replicas": 3, "memory": "2Gi"}},
    "train": {"steps": 500, "learning_rate": 1e-4, "learning_rates": {"64": 1e-3}}, "settings": {"units": 3},
    "devices": ["CPU:0"], "deadlines": {"start": 60}, "kubernetes": {"env": {"A": "b"}}, "model_dir": "runs/j",
}  # fmt: skip


def test_every_spec_is_understood_or_refused(dice: Dice, tmp_path: Path) -> None:
    path, text = tmp_path / "job.yaml", yaml.safe_dump(RAW).encode()
    for number in range(800 * TIMES):
        if number % 3:
            job = dice.document(RAW).decode(errors="surrogateescape")
            spec = refused(load.load_environment, {"TRAINER_JOB": job})
        else:
            path.write_bytes(dice.damage(text))
            spec = refused(load.load_file, path, environ={})
        if spec is not None:
            refused(check_workload, spec)
            refused(digest, spec)


def test_every_override_is_understood_or_refused(dice: Dice) -> None:
    words = b"train.steps=600 tasks.worker=2 'settings.slices=[10, 90]' train.learning_rates={64: 0.1} name=x"
    for _ in range(300 * TIMES):
        environ = {"TRAINER_JOB": json.dumps(RAW), "TRAINER_SET": dice.damage(words).decode(errors="surrogateescape")}
        refused(load.load_environment, environ)


def test_every_secret_is_taken_or_refused(dice: Dice, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    for _ in range(300 * TIMES):
        path.write_bytes(dice.damage(b"0123456789abcdef\n"))
        taken = refused(secret.take, {"TRAINER_SECRET_FILE": str(path)})
        assert taken != b""


META: dict[str, Any] = {
    "format": 1, "step": 500,
    "compatibility_key": {"workload": "mnist", "settings": {}, "api": "loop", "dataset": None},
    "variables": {"model.000": {"path": "dense/kernel", "shape": [10, 10], "dtype": "float32"}},
}  # fmt: skip


def test_no_file_of_a_model_dir_that_is_malformed_is_believed(
    dice: Dice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(environment.RESTARTS, "3")
    spec, log = spec_of(tmp_path), tmp_path / "logs/worker-0.log"
    log.parent.mkdir()
    folder = tmp_path / "checkpoints/step-00000500"
    folder.parent.mkdir()
    (folder.parent / "step-²").mkdir()
    file = io.BytesIO()
    meta = {**META, "sha256": arrays.write(file, [("model.000", np.zeros(3))])}
    counts = tasks_of(spec)[0].counts
    key = compatibility.key(spec, counts, "a0")
    restart_guard.remember(log, Exit.USER)
    end = json.loads(log.with_suffix(".end.json").read_text())
    result = {
        "status": "succeeded",
        "compatibility_key": {**key, **results.steps_asked(spec)},
        "steps": 500,
        "warnings": ["x"],
    }
    variables = meta["variables"]
    for _ in range(600 * TIMES):
        folder.mkdir(exist_ok=True)  # a damaged one was renamed
        (folder / "variables.npz").write_bytes(file.getvalue())
        (folder / "meta.json").write_bytes(dice.document(meta))
        found, refusal = None, ""
        try:
            found, _broken = checkpoint.restore(tmp_path, lambda _: None, lambda _, read: dict(read).clear())
        except UserError as error:
            refusal = str(error)
        assert not refusal or re.search(r"format: \d+: this trainer reads formats up to 1", refusal)
        if found is not None:
            assert checkpoint.steps(tmp_path) == [500]
            different = checkpoint_meta.differences(found.meta, spec, key, variables)
            assert str(checkpoint_meta.refusal(found.meta, str(tmp_path), different))
        (layout.make_own(tmp_path) / "state.json").write_bytes(
            dice.document(asdict(job_state.State(3, 4001, 100.5, 2.25, {"a": 1.0})))
        )
        state = job_state.load(str(tmp_path), 1.0)
        assert 0 <= state.generation + 1 < 2**32
        job_state.save(str(tmp_path), state)
        log.with_suffix(".end.json").write_bytes(dice.document(end))
        assert restart_guard.repeat_failure(log) is not Exit.OK
        (layout.make_own(str(tmp_path)) / "result.json").write_bytes(dice.document(result))
        known = results.completed(spec, counts, "a0")
        assert known is None or isinstance(known.steps, int)
        results.set_warning(str(tmp_path), "evaluator:0", "evaluator:0 did not score")
        assert summary.summary(str(tmp_path))


def test_no_status_that_is_malformed_leaves_a_traceback(dice: Dice) -> None:
    job: dict[str, Any] = {
        "phase": "running", "generation": 2, "step": 30, "steps": 500, "loss": 0.5, "last_checkpoint": None,
        "waiting_for": None, "seconds": 3.5, "events": [{"time": 1.7e9, "text": "generation 1 formed"}],
        "tasks": {"worker:1": {"state": "running", "step": 3, "restarts": 1, "generation": 2, "loss": 0.1}},
        "job": "j", "task": "worker:0", "strategy": "multi_worker_mirrored", "restarts": 0, "standby": False,
        "end": None, "version": 1,
    }  # fmt: skip
    read_well = 0
    for _ in range(500 * TIMES):
        try:
            status = read_status(dice.document(job))
        except ValueError:
            continue
        read_well += 1
        table.render("j", "parameter_server", ["worker:1"], status, 1.0)
        describe(JobOverview("j", "running", tasks={"worker:1": ContainerState("running")}, job=status))
    assert read_well > 20


def test_an_order_that_is_malformed_stops_no_child(dice: Dice, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    orders = [{"go": {"generation": 1, "resume_step": 500}}, {"final": 500}]
    lines = [dice.document(dice.choice(orders)).replace(b"\n", b" ") for _ in range(500 * TIMES)]
    path = tmp_path / "orders"
    path.write_bytes(b"\n".join([*lines, b'{"stop": true}', b""]))
    came = channel.Channel.__new__(channel.Channel)
    came.__dict__.update(stopping=threading.Event(), go=queue.Queue(), final=queue.Queue())
    with path.open(errors="replace") as file:
        monkeypatch.setattr("sys.stdin", file)
        monkeypatch.setattr(os, "_exit", lambda code: None)
        came._listen()
    assert came.stopping.is_set()
    assert all(isinstance(order, Go) for order in came.go.queue)
    assert all(isinstance(order, Final) for order in came.final.queue)
    assert came.go.queue
