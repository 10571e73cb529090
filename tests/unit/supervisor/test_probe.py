"""The command of HEALTHCHECK, against a real control port."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.unit.supervisor.ports import HOST
from trainer.job import environment
from trainer.job.names import CONTROL_PORT_OFFSET
from trainer.protocol.reports import Identity
from trainer.supervisor.control_port import server as control_port


async def ask(environ: dict[str, str], path: str, *words: str) -> tuple[int | None, str, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *(words or ("trainer.supervisor.probe",)), path, env={**os.environ, **environ},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    out, err = await process.communicate()
    return process.returncode, out.decode(), err.decode()


def tf_config(task_type: str, port: int) -> str:
    cluster = {"worker": ["elsewhere:1", f"worker-1:{port - CONTROL_PORT_OFFSET}"]}
    index = 0 if task_type == "evaluator" else 1
    return json.dumps({"cluster": cluster, "task": {"type": task_type, "index": index}})


@pytest.mark.parametrize("task_type", ["worker", "evaluator"])
def test_it_prints_the_answer_of_its_own_control_port(task_type: str) -> None:
    async def run() -> Any:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        identity = Identity("j", f"{task_type}:1", "x")
        opened = await control_port.serve(port, "127.0.0.1", identity, lambda: {"step": 3})
        environ = {"TF_CONFIG": tf_config(task_type, port), environment.CONTROL_PORT: str(port)}
        answers = [await ask(environ, path) for path in ("healthz", "status", "nothing")]
        by_command = await ask(environ, "status", "trainer", "probe")
        await opened.close()
        assert by_command == answers[1]
        return answers

    healthz, status, nothing = asyncio.run(run())
    assert (healthz[0], json.loads(healthz[1])["task"]) == (0, f"{task_type}:1")
    assert (status[0], json.loads(status[1])) == (0, {"step": 3})
    assert nothing[0] == 1


def test_without_a_supervisor_the_probe_exits_with_1_and_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    code, out, err = asyncio.run(ask({"TF_CONFIG": tf_config("worker", port)}, "healthz"))
    assert (code, out) == (1, "")
    assert err.startswith(f"port {port}: ")
    assert err.count("\n") == 1


RELAY = "import sys; from trainer.supervisor import probe; sys.exit(probe._relay({}))"


@contextmanager
def relaying(port: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", RELAY.format(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(20)
        yield listener


def accepted(server: socket.socket) -> socket.socket:
    connection, _ = server.accept()
    connection.settimeout(20)
    return connection


def test_bytes_go_in_both_directions_unchanged(server: socket.socket) -> None:
    much = bytes(range(256)) * 4096
    with relaying(server.getsockname()[1]) as process, accepted(server) as there:
        assert process.stdin
        assert process.stdout
        process.stdin.write(b"\x00question\n")
        process.stdin.flush()
        assert there.recv(100) == b"\x00question\n"
        there.settimeout(None)
        there.sendall(much[:1000])
        assert process.stdout.read(1000) == much[:1000]
        there.sendall(much[1000:50_000])
        there.shutdown(socket.SHUT_WR)
        assert process.stdout.read() == much[1000:50_000]
        assert process.wait(20) == 0


def test_it_ends_when_who_asked_is_gone(server: socket.socket) -> None:
    with relaying(server.getsockname()[1]) as process, accepted(server) as there:
        assert process.stdin
        process.stdin.close()
        assert there.recv(100) == b""
        assert process.wait(20) == 0


def test_a_port_without_a_listener_is_named(free: int) -> None:
    with relaying(free) as process:
        assert process.wait(20) == 1
        assert process.stdout
        assert process.stderr
        assert process.stdout.read() == b""
        assert process.stderr.read().decode().startswith(f"port {free}: ")
