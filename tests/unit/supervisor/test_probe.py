"""The command of HEALTHCHECK, against a real control port."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest

from trainer.job import environment
from trainer.job.names import CONTROL_PORT_OFFSET
from trainer.protocol.reports import Identity
from trainer.supervisor import server


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
        runner = await server.serve(port, "127.0.0.1", identity, lambda: {"step": 3}, None)
        environ = {"TF_CONFIG": tf_config(task_type, port), environment.CONTROL_PORT: str(port)}
        answers = [await ask(environ, path) for path in ("healthz", "status", "nothing")]
        by_command = await ask(environ, "status", "trainer", "probe")
        await runner.cleanup()
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
