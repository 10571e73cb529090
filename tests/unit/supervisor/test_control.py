"""The control port with real connections on loopback."""

import asyncio
import contextlib
import io
import json
import math
import os
import re
import socket
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from prometheus_client.parser import text_string_to_metric_families

from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.load import build
from trainer.job.tf_config import tasks_of
from trainer.model_dir import checkpoint, layout
from trainer.model_dir import state as job_state
from trainer.model_dir.files import write_json
from trainer.protocol.reports import Identity, Reply, Report, read_answer
from trainer.protocol.status import End, document
from trainer.supervisor import control, earlier_run
from trainer.supervisor.agent import Agent
from trainer.supervisor.chief import Chief

HOST = "127.0.0.1"
IDENTITY = {"job": "j", "task": "worker:1", "incarnation": "abc"}
STATUS: dict[str, Any] = {
    "step": 30,
    "loss": 0.5,
    "generation": 2,
    "phase": "running",
    "text": "x",
    "last_checkpoint": None,
}
REPORT = Report(
    "worker:1", "abc", "digest", "spec", "workload", {"tensorflow": "2.21.0"}, failure=(2, "x"), status={"step": 5}
)
REPLY = Reply("running", 3, 500, version=7, step=520)


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens who never answers."""
    with socket.create_server((HOST, 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def free() -> int:
    """A port on which nobody listens."""
    with socket.create_server((HOST, 0)) as server:
        port: int = server.getsockname()[1]
        return port


@contextlib.asynccontextmanager
async def serving(
    answer: control.Answer | None = None, status: Any = None, **more: Any
) -> AsyncIterator[tuple[ClientSession, int]]:
    """A client, and the control port of a task."""
    runner = await control.serve(0, HOST, IDENTITY, lambda: status or STATUS, answer, **more)
    try:
        async with control.client() as session:
            yield session, runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def get(session: ClientSession, port: int, path: str) -> tuple[int, str]:
    async with session.get(f"http://{HOST}:{port}{path}") as response:
        return response.status, await response.text()


async def answer_at_once(report: Report, known: int) -> Reply:
    return replace(REPLY, message=f"{report.task} knows {known}")


# What anybody may read. ---------------------------------------------------------------------------


def test_healthz_tells_who_is_there_and_status_what_it_does() -> None:
    async def run() -> None:
        async with serving() as (session, port):
            assert await control.who_is_there(session, (HOST, port)) == Identity(**IDENTITY)
            code, text = await get(session, port, "/status")
            assert (code, json.loads(text)) == (200, STATUS)
            assert (await get(session, port, "/report"))[0] == 404

    asyncio.run(run())


def test_metrics_are_gauges_with_job_and_task_of_the_numbers_in_status() -> None:
    async def run() -> str:
        async with serving() as (session, port):
            return (await get(session, port, "/metrics"))[1]

    families = list(text_string_to_metric_families(asyncio.run(run())))
    found = {
        sample.name: (family.type, sample.labels, sample.value) for family in families for sample in family.samples
    }
    labels = {"job": "j", "task": "worker:1"}
    assert found == {
        "trainer_step": ("gauge", labels, 30),
        "trainer_loss": ("gauge", labels, 0.5),
        "trainer_generation": ("gauge", labels, 2),
    }
    assert all(family.documentation for family in families)


def test_a_port_that_is_taken_is_named_with_the_way_out(taken: int) -> None:
    with pytest.raises(UserError) as caught:
        asyncio.run(control.serve(taken, HOST, IDENTITY, dict, None))
    assert caught.value.code is Exit.USER
    assert str(caught.value).startswith(f"port {taken} (control port of worker:1) cannot be used: ")
    assert str(caught.value).endswith("or change this task's port in TF_CONFIG (control port = TensorFlow port + 1000)")


# Reports. -----------------------------------------------------------------------------------------


def test_a_report_arrives_whole_and_so_does_the_reply() -> None:
    came: list[Report] = []

    async def answer(report: Report, known: int) -> Reply:
        came.append(report)
        return await answer_at_once(report, known)

    async def run() -> Reply:
        async with serving(answer) as (session, port):
            return await control.send_report(session, (HOST, port), REPORT, 6)

    assert asyncio.run(run()) == replace(REPLY, message="worker:1 knows 6")
    assert came == [REPORT]


@pytest.fixture
def chief(tmp_path: Path) -> Iterator[Chief]:
    """A chief of three workers, none of which came yet."""
    tasks = {"worker": 3}
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": tasks, "model_dir": str(tmp_path)})
    task = tasks_of(spec)[0]
    chief = Chief(Agent(spec, task, Path(os.devnull)))
    yield chief
    chief._lock.close()


def report_of(chief: Chief, name: str, **changes: Any) -> Report:
    """As another task of the same job would send it."""
    return replace(chief._agent.report(), task=name, incarnation="another", status={}, **changes)


@pytest.mark.parametrize("stopped", [False, True])
def test_a_state_that_cannot_be_written_or_removed_is_no_traceback(chief: Chief, tmp_path: Path, stopped: bool) -> None:
    """As on a volume that is full, or read-only since an error."""
    (tmp_path / "state.json").mkdir()

    async def run() -> tuple[Reply, Exit]:
        rendezvous, chief._leads = chief._rendezvous, True
        if stopped:
            rendezvous.end(Exit.STOPPED, "stopped by a signal")
        for number in (1, 2, 3):  # with the second the generation forms, the third hears of the end
            for name in rendezvous.required[1:]:
                reply = await chief.answer(report_of(chief, name, number=number), 0)
                rendezvous.members[name].problem = rendezvous.members["worker:0"].problem = None
        return reply, await chief._finish()

    reply, code = asyncio.run(asyncio.wait_for(run(), 30))
    assert reply.phase == "failed"
    assert code is reply.code
    if stopped:
        assert code is Exit.STOPPED
    else:
        assert (code, reply.message) == (
            Exit.USER, f"model_dir: {tmp_path}/state.json: cannot be written: Is a directory",
        )  # fmt: skip


@pytest.mark.parametrize("how", ["checkpoint", "result"])
def test_a_refused_rerun_leaves_the_state_for_the_next_resume(tmp_path: Path, how: str) -> None:
    spec = build({"name": "j", "strategy": "one_device", "model_dir": str(tmp_path)})
    kept = job_state.State(generation=3, started=1e9, step=40)
    job_state.save(str(tmp_path), kept)
    fits = {"train.seed": 7}
    if how == "checkpoint":
        checkpoint.save(tmp_path, 40, {}, {"fits": fits})
    else:
        write_json(layout.result(str(tmp_path)), {"status": "succeeded", "fits": fits, "steps": 40})

    async def run() -> Exit:
        chief = Chief(Agent(spec, tasks_of(spec)[0], Path(os.devnull)))
        with contextlib.closing(chief._lock):
            async with control.client() as session:
                return await chief.run(session)

    assert asyncio.run(asyncio.wait_for(run(), 30)) is Exit.USER
    assert job_state.load(str(tmp_path), 0.0) == kept


def bytes_read() -> int:
    """By this process so far (proc(5))."""
    return int(Path("/proc/self/io").read_text().split()[1])


@pytest.mark.parametrize("steps", [1000, 500])
def test_a_supervisor_never_reads_the_values_of_a_checkpoint(chief: Chief, tmp_path: Path, steps: int) -> None:
    """To verify 8 GB takes 40 s, in which it would not answer: that is the child's work."""
    folder = checkpoint.folder(tmp_path) / "step-00000700"
    folder.mkdir(parents=True)
    meta = {"format": 1, "step": 700, "sha256": "", "fits": chief._fits, "variables": {}}
    (folder / "meta.json").write_text(json.dumps(meta))
    with (folder / "variables.npz").open("wb") as file:
        file.truncate(300 << 20)
    chief._spec = chief._spec.model_copy(update={"train": chief._spec.train.model_copy(update={"steps": steps})})
    before = bytes_read()
    with contextlib.nullcontext() if steps >= 700 else pytest.raises(UserError, match="at step 700"):
        earlier_run.check_checkpoint(chief._spec, chief._fits)
    chief.status()
    # No child has verified it: it may be damaged.
    assert (
        chief._stopped() == "stopped by a signal; the newest checkpoint is that of step 700; the same command resumes"
    )
    assert bytes_read() - before < 1 << 20


def test_a_held_report_is_answered_at_the_news(chief: Chief, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without news it would be held for the 60 s that the client waits."""
    monkeypatch.setattr(control, "POLL_SECONDS", 60.0)
    came = asyncio.Queue[Report]()

    async def answer(report: Report, known: int) -> Reply:
        came.put_nowait(report)
        return await chief.answer(report, known)

    async def run() -> None:
        async with serving(answer) as (session, port):

            async def ask(name: str, known: int, **changes: Any) -> Reply:
                return await control.send_report(session, (HOST, port), report_of(chief, name, **changes), known)

            first = await ask("worker:1", 0)
            assert first.phase == "forming"
            held = asyncio.create_task(ask("worker:1", first.version))
            for _ in range(2):
                await came.get()
            assert not held.done()
            assert (await ask("worker:2", first.version, failure=(13, "the loss is nan"))).phase == "failed"
            assert (await held).message == "worker:2: the loss is nan"

    asyncio.run(asyncio.wait_for(run(), 30))


def test_without_news_a_report_is_answered_in_the_end(chief: Chief, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "POLL_SECONDS", 0.1)

    async def run() -> None:
        begun = time.monotonic()
        reply = await chief.answer(report_of(chief, "worker:1"), 1)
        assert (reply.phase, reply.version) == ("forming", 1)
        assert time.monotonic() - begun >= 0.09

    asyncio.run(run())


GOOD: dict[str, Any] = asdict(REPORT)
NESTED = b'{"report": {"task": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
NO_REPORTS: dict[str, bytes | dict[str, Any]] = {
    "nothing": b"", "half": b"{", "no text": b"\xff", "a list": b"[]", "a number": b"3", "text": b'"x"',
    "null": b"null", "nested": NESTED, "no fields": {}, "a field too many": {**GOOD, "colour": "blue"},
    "a field missing": {key: value for key, value in GOOD.items() if key != "task"},
    "a task without a name": {**GOOD, "task": ""}, "a task that is no text": {**GOOD, "task": 1},
    "control characters": {**GOOD, "task": "worker:1\nall is well"}, "a long name": {**GOOD, "task": "w" * 300},
    "a success as a failure": {**GOOD, "failure": [0, "x"]}, "an unknown code": {**GOOD, "failure": [99, "x"]},
    "a code that is no whole number": {**GOOD, "failure": [2.0, "x"]},
    "a code that is true": {**GOOD, "failure": [True, "x"]},
    "a failure without text": {**GOOD, "failure": [2]}, "a failure that is text": {**GOOD, "failure": "2x"},
    "less than 0": {**GOOD, "generation": -1}, "too much": {**GOOD, "lost": 10**30},
    "a fraction": {**GOOD, "restarts": 0.5},
    "NaN": {**GOOD, "status": {"loss": math.nan}}, "infinity": {**GOOD, "status": {"loss": math.inf}},
    "nested figures": {**GOOD, "status": {"loss": {"a": 1}}}, "a huge figure": {**GOOD, "status": {"step": 10**30}},
    "many figures": {**GOOD, "status": {str(i): i for i in range(1000)}},
    "a version that is a number": {**GOOD, "versions": {"tensorflow": 2}}, "yes for true": {**GOOD, "leaving": "yes"},
}  # fmt: skip


async def post(session: ClientSession, port: int, body: Any, **headers: str) -> tuple[int, str]:
    async with session.post(f"http://{HOST}:{port}/report", data=body, headers=headers) as response:
        return response.status, await response.text()


@pytest.mark.parametrize("what", NO_REPORTS)
def test_what_is_no_report_is_refused_in_one_line_and_never_reaches_the_chief(
    what: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    value, refused = NO_REPORTS[what], list[tuple[str, ...]]()
    body = value if isinstance(value, bytes) else json.dumps({"report": value, "known": 0}).encode()

    async def run() -> tuple[int, str]:
        async with serving(never, refuse=lambda *why: refused.append(why)) as (session, port):
            return await post(session, port, body)

    code, text = asyncio.run(run())
    assert code == 400
    assert text.startswith("not a report: ")
    assert text.isprintable()
    assert len(text) < 300
    assert refused == [(HOST, "", "is no report")]
    assert (*capfd.readouterr(), *caplog.messages) == ("", "")


async def never(report: Report, known: int) -> Reply:
    raise AssertionError(report)


@pytest.mark.parametrize("known", [-1, "0", None, 2**40, 0.5])
def test_the_version_that_a_task_knows_is_a_number(known: object) -> None:
    async def run() -> int:
        async with serving(never) as (session, port):
            return (await post(session, port, json.dumps({"report": GOOD, "known": known}).encode()))[0]

    assert asyncio.run(run()) == 400


def test_a_report_that_is_too_long_is_refused() -> None:
    refused = list[tuple[str, ...]]()

    async def run() -> list[int]:
        async with serving(never, refuse=lambda *why: refused.append(why)) as (session, port):
            bomb = zlib.compress(b"[" * (64 << 20))
            return [
                (await post(session, port, io.BytesIO(b" " * 2_000_000)))[0],
                (await post(session, port, bomb, **{"Content-Encoding": "deflate"}))[0],
            ]

    assert asyncio.run(run()) == [413, 413]
    assert refused == [(HOST, "", "is too long")] * 2


def test_what_users_put_into_a_report_is_cut_to_what_may_be_sent() -> None:
    status = {"line": "a\tb", "loss": math.nan, "x" * 300: 1, "nested": {"a": 1}, "": 1, "step": 5, "big": 10**40}
    came: list[Report] = []

    async def answer(report: Report, known: int) -> Reply:
        came.append(report)
        return REPLY

    async def run() -> None:
        async with serving(answer) as (session, port):
            long = replace(REPORT, status=status, reason="\x1b[2J", failure=(2, "one\ntwo\0" + "x" * 2**20))
            await control.send_report(session, (HOST, port), long, 0)

    asyncio.run(run())
    (report,) = came
    assert (report.status, report.reason) == ({"step": 5}, " [2J")
    assert report.failure is not None
    assert report.failure[1].startswith("one\ntwo xxx")
    assert len(report.failure[1]) == 8000


# The secret. --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("theirs", "chiefs"),
    [(b"", b"right"), (b"wrong", b"right"), (b"right", b"")],
    ids=["none", "another", "only theirs"],
)
def test_a_report_with_another_secret_than_the_chiefs_is_refused_and_its_sender_ends(
    theirs: bytes, chiefs: bytes
) -> None:
    refused = list[tuple[str, ...]]()

    async def run() -> None:
        async with serving(never, refuse=lambda *why: refused.append(why), secret=chiefs) as (session, port):
            await control.send_report(session, (HOST, port), REPORT, 0, theirs)

    with pytest.raises(TrainerError) as caught:
        asyncio.run(run())
    assert caught.value.code is Exit.MISMATCH
    assert str(caught.value) == (
        "worker:1 was given another secret than its chief; give TRAINER_SECRET or TRAINER_SECRET_FILE to all tasks of "
        "a job, the same to each, or to none"
    )
    assert refused == [(HOST, "worker:1", "lacks this job's secret")]


def test_with_the_same_secret_report_and_reply_are_believed_and_it_is_never_sent() -> None:
    secret, sent, port = b"0123456789abcdef", b"", 0

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Passes on what either says to the other, and keeps it."""
        nonlocal sent
        there, back = await asyncio.open_connection(HOST, port)

        async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            nonlocal sent
            while data := await source.read(1 << 16):
                sent += data
                target.write(data)
            target.close()

        await asyncio.gather(copy(reader, back), copy(there, writer))

    async def run() -> Reply:
        nonlocal port
        served, listening = serving(answer_at_once, secret=secret), asyncio.start_server(listen, HOST, 0)
        async with served as (session, there), await listening as middle:
            port = there
            between: int = middle.sockets[0].getsockname()[1]
            return await control.send_report(session, (HOST, between), REPORT, 6, secret)

    assert asyncio.run(run()) == replace(REPLY, message="worker:1 knows 6")
    assert b"worker:1" in sent
    assert secret not in sent


def test_a_reply_without_the_secret_is_not_believed() -> None:
    """Another program at the chief's address, that says: the job is done."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        signature = re.search(rb"Trainer-Signature: (\w+)", head)
        assert signature is not None
        reply = json.dumps(asdict(Reply("done", 1, 0, 2))).encode()
        lines = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(reply), signature[0], b"Connection: close", b"", reply]
        writer.write(b"\r\n".join(lines))
        writer.close()

    async def run() -> str:
        async with await asyncio.start_server(talk, HOST, 0) as server, control.client() as session:
            address = (HOST, server.sockets[0].getsockname()[1])
            with pytest.raises(ConnectionError) as caught:
                await control.send_report(session, address, REPORT, 0, b"secret")
            return str(caught.value)

    assert asyncio.run(run()).endswith(" answers without this job's secret: another program?")


BAD_REPLIES: list[dict[str, Any]] = [
    {"phase": "done", "code": 2}, {"phase": "failed", "code": 0}, {"phase": "running", "code": 2},
    {"code": 99, "phase": "failed"}, {"phase": "over"}, {"generation": -1}, {"step": "7"}, {"colour": "blue"},
]  # fmt: skip


@pytest.mark.parametrize("changes", BAD_REPLIES, ids=str)
def test_a_reply_that_makes_no_sense_is_no_reply(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(changes))):
        read_answer(json.dumps({**asdict(REPLY), **changes}).encode())


# What a chief makes of it. ------------------------------------------------------------------------


def test_a_report_in_the_chiefs_name_changes_nothing(chief: Chief) -> None:
    async def run() -> Reply:
        return await chief.answer(report_of(chief, "worker:0", failure=(2, "x")), 0)

    reply = asyncio.run(run())
    assert (reply.phase, reply.code, reply.message) == ("failed", Exit.MISMATCH, "worker:0 is the chief itself")
    assert chief.status().phase == "forming"


def test_a_task_that_comes_before_the_chief_looks_is_compared_with_it_all_the_same(chief: Chief) -> None:
    reply = asyncio.run(chief.answer(report_of(chief, "worker:1", workload="another"), 0))
    assert (reply.phase, reply.code) == ("failed", Exit.MISMATCH)


def test_no_failure_of_the_chiefs_own_child_is_a_success(chief: Chief) -> None:
    chief._agent.failure = (0, "all is well")
    chief._rendezvous.report(chief._agent.report(), 0)
    assert chief.status().end == End(Exit.BUG, "worker:0: all is well")


def test_figures_of_a_user_do_not_hide_ours(chief: Chief) -> None:
    status = {"state": "done", "generation": 9, "phase": "done", "loss": 0.5}
    asyncio.run(chief.answer(replace(report_of(chief, "worker:1"), status=status), 0))
    row = document(chief.status())["tasks"]["worker:1"]
    assert (row["state"], row["generation"], row["loss"]) == ("waiting", 0, 0.5)


def test_refusals_are_logged_once_for_each_peer_and_change_nothing(
    chief: Chief, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        chief.refuse("10.0.0.1", "worker:1", "lacks this job's secret")
        chief.refuse("10.0.0.1", "", "is no report")
    for number in range(1000):
        chief.refuse(f"10.0.1.{number}", "worker:7", "is no report")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == [
        "refused what 10.0.0.1 sent to /report as worker:1: it lacks this job's secret",
        "refused what 10.0.0.1 sent to /report: it is no report",
    ]
    assert len(lines) == 50
    assert chief._rendezvous.missing(0)["worker:1"] == "never came (not dialled yet)"
    chief._rendezvous.tick(chief._clock() + 10_000)
    assert chief.status().end == End(Exit.MISSING, chief._rendezvous.message), "anybody can send what is not signed"


def test_a_task_that_never_came_is_named_with_the_refusal_of_its_reports(chief: Chief) -> None:
    chief.refuse("10.0.0.1", "worker:1", "lacks this job's secret")

    async def run() -> str:
        async with control.client() as session:
            await chief._dialler.dial_back(session, "worker:1", (HOST, 1))
        return chief._rendezvous.missing(0)["worker:1"]

    why = "127.0.0.1:1 refused; what 10.0.0.1 sent as worker:1 lacks this job's secret"
    assert asyncio.run(run()) == f"never came ({why})"


def test_a_task_whose_request_was_abandoned_did_not_hear_of_the_end(chief: Chief) -> None:
    async def run() -> list[str]:
        rendezvous = chief._rendezvous
        report = report_of(chief, "worker:1")
        async with serving(chief.answer) as (session, port):
            held = asyncio.create_task(control.send_report(session, (HOST, port), report, rendezvous.version))
            while "worker:1" not in rendezvous.members:
                await asyncio.sleep(0.01)
            held.cancel()
            await asyncio.wait({held})
            await get(session, port, "/healthz")
            rendezvous.end(Exit.OK, "")
            chief._announce()
            await get(session, port, "/healthz")
            return rendezvous.unnotified(rendezvous.members["worker:1"].seen)

    assert "worker:1" in asyncio.run(asyncio.wait_for(run(), 30))


# What else may come to a port. --------------------------------------------------------------------

TO_REPORT = b"POST /report HTTP/1.1\r\nHost: x\r\n"
STRANGE_REQUESTS = {
    "TLS": bytes.fromhex("16030100a5010000a1030374"),
    "binary": bytes(range(256)),
    "a path": b"GET /../../x HTTP/1.1\r\n\r\n",
    "a method": b"PROPFIND / HTTP/1.1\r\nHost: x\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "a long line": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    "many headers": b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 50_000 + b"\r\n",
    "a host": b"GET /status HTTP/1.1\r\nHost: [::::\r\n\r\n",
    "a length that is none": TO_REPORT + b"Content-Length: -1\r\n\r\n",
    "two lengths": TO_REPORT + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "broken chunks": TO_REPORT + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    "broken deflate": TO_REPORT + b"Content-Encoding: deflate\r\nContent-Length: 3\r\n\r\nabc",
    "broken gzip": TO_REPORT + b"Content-Encoding: gzip\r\nContent-Length: 3\r\n\r\nabc",
    "half a body": TO_REPORT + b"Content-Length: 100\r\n\r\n{}",
    "a charset": TO_REPORT + b"Content-Type: text/json; charset=klingon\r\nContent-Length: 2\r\n\r\n{}",
    "a signature": TO_REPORT + b"Trainer-Signature: \xff\xfe\r\nContent-Length: 2\r\n\r\n{}",
}


@pytest.mark.parametrize("request_", STRANGE_REQUESTS)
def test_what_is_no_request_leaves_no_traceback_and_the_port_serves_on(
    request_: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> bytes:
        async with serving(never) as (session, port):
            reader, writer = await asyncio.open_connection(HOST, port)
            with contextlib.suppress(ConnectionError):
                writer.write(STRANGE_REQUESTS[request_])
                writer.write_eof()
                answer = await asyncio.wait_for(reader.read(), 20)
            writer.close()
            assert (await get(session, port, "/healthz"))[0] == 200
            return answer

    answer = asyncio.run(run())
    assert b"500 " not in answer
    assert b"Traceback" not in answer
    assert (*capfd.readouterr(), *caplog.messages) == ("", "")


def test_status_is_json_that_everybody_reads_also_with_a_loss_that_is_none() -> None:
    async def run() -> tuple[int, str]:
        async with serving(status={"loss": math.nan, "tasks": {"worker:0": {"x": [math.inf, 1]}}}) as (session, port):
            assert (await get(session, port, "/metrics"))[0] == 200
            return await get(session, port, "/status")

    code, text = asyncio.run(run())
    assert (code, json.loads(text)) == (200, {"loss": None, "tasks": {"worker:0": {"x": [None, 1]}}})
    assert "NaN" not in text


# Why somebody cannot be reached. ------------------------------------------------------------------


async def ask(address: tuple[str, int]) -> None:
    async with control.client() as session:
        await control.who_is_there(session, address)


async def report_to(address: tuple[str, int]) -> None:
    async with control.client() as session:
        await control.send_report(session, address, REPORT, 0)


Dial = Callable[[tuple[str, int]], Awaitable[None]]
dials = pytest.mark.parametrize("dial", [ask, report_to])


def problem(dial: Dial, address: tuple[str, int]) -> str:
    async def run() -> None:
        await dial(address)

    with pytest.raises(ConnectionError) as caught:
        asyncio.run(run())
    return str(caught.value)


@dials
def test_nobody_listens(dial: Dial, free: int) -> None:
    assert problem(dial, (HOST, free)) == f"{HOST}:{free} refused"


@dials
def test_a_name_that_does_not_exist(dial: Dial) -> None:
    assert problem(dial, ("j-worker-1.j.invalid", 3222)) == "j-worker-1.j.invalid does not resolve (DNS)"


@dials
def test_nobody_answers(dial: Dial, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "DIAL_SECONDS", 0.1)
    monkeypatch.setattr(control, "POLL_SECONDS", 0.1)
    assert problem(dial, (HOST, taken)) == f"no answer from {HOST}:{taken}"


ANSWERS = {
    "not found": b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno",
    "HTML": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>",
    "no HTTP": b"SSH-2.0-OpenSSH_9.2\r\n",
    "JSON that is no object": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n\"ok\"",
    "broken JSON": b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4\r\n\r\n{\"ok",
    "a closed connection": b"",
}  # fmt: skip


@dials
@pytest.mark.parametrize("answer", list(ANSWERS))
def test_another_program_answers(dial: Dial, answer: str) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWERS[answer])
        await writer.drain()
        writer.close()

    async def run() -> tuple[str, int]:
        async with await asyncio.start_server(talk, HOST, 0) as server:
            port: int = server.sockets[0].getsockname()[1]
            with pytest.raises(ConnectionError) as caught:
                await dial((HOST, port))
            return str(caught.value), port

    text, port = asyncio.run(run())
    if answer == "a closed connection":
        assert text == f"{HOST}:{port}: Server disconnected"
    elif (answer, dial) == ("not found", report_to):
        assert text == f"{HOST}:{port} answers 404: another program?"
    else:
        assert text == f"{HOST}:{port} answers, but is no supervisor: another program?"


def test_a_proxy_of_the_environment_is_not_asked(free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", f"http://{HOST}:{free}")

    async def run() -> None:
        async with serving() as (session, port):
            assert await control.who_is_there(session, (HOST, port)) == Identity(**IDENTITY)

    asyncio.run(run())


def test_an_address_of_ipv6_is_dialled() -> None:
    async def run() -> None:
        runner = await control.serve(0, "::1", IDENTITY, dict, None)
        async with control.client() as session:
            assert await control.who_is_there(session, ("::1", runner.addresses[0][1])) == Identity(**IDENTITY)
        await runner.cleanup()

    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        asyncio.run(run())
