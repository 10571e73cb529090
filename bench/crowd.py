"""A thousand supervisors without TensorFlow: one real chief, and all others as coroutines of one process.

Each of them listens on its own control port, is dialled back there and sends its reports over TCP, as a supervisor
does (trainer/supervisor/task/follower.py).
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import time
import uuid
from contextlib import AsyncExitStack
from typing import Any

from aiohttp import ClientError

from bench import run
from bench.run import Steps
from tests.tools.harness import TRAINER
from trainer import host
from trainer.job import load
from trainer.job.cluster import Task, tasks_of
from trainer.job.names import TF_PORT, task_name
from trainer.job.spec import JobSpec
from trainer.protocol.reports import Identity, Report
from trainer.supervisor import preflight
from trainer.supervisor.control_port import peers, server
from trainer.supervisor.task.follower import RETRY_SECONDS
from trainer.targets.local import run as local
from trainer.workloads.digests import digest

SECONDS = 120.0


async def meet(count: int) -> float:
    """Seconds from the report of the last of `count` tasks until all of them know that they may go."""
    more = {"deadlines": {"start": SECONDS}}
    with tempfile.TemporaryDirectory() as folder:
        job = load.build({**run.spec("parameter_server", count - 2, Steps(1, 1), **more), "model_dir": folder})
        # All of 127.0.0.0/8 is this machine: an address for each, so that all have the same ports.
        places = {
            name: f"127.1.{i // 250}.{i % 250 + 1}:{TF_PORT}" for i, name in enumerate(t.name for t in tasks_of(job))
        }
        chief, *others = tasks_of(job, lambda task_type, index: places[task_name(task_type, index)])
        async with AsyncExitStack() as stack:
            session = await stack.enter_async_context(peers.client())
            reports = [await _listen(stack, job, task) for task in others]
            process = await asyncio.create_subprocess_exec(
                *TRAINER, "task", env=local.environment_of(job, chief, {}), stdout=asyncio.subprocess.DEVNULL
            )
            try:
                return await _report_all(session, chief, reports)
            finally:
                process.kill()
                await process.wait()


async def _listen(stack: AsyncExitStack, job: JobSpec, task: Task) -> Report:
    report = Report(
        task=task.name, incarnation=uuid.uuid4().hex, cluster=task.digest, versions=host.versions(),
        spec=hashlib.sha256(job.model_dump_json().encode()).hexdigest()[:12], workload=digest(job),
    )  # fmt: skip
    address, port = preflight.control_address(task)
    identity = Identity(job.name, task.name, report.incarnation)
    opened = await server.serve(port, address, identity, dict)
    stack.push_async_callback(opened.close)
    return report


async def _report_all(session: Any, chief: Task, reports: list[Report]) -> float:
    address = chief.control_address(*chief.chief)
    last = reports.pop()
    waiting = [asyncio.create_task(_until_go(session, address, report)) for report in reports]
    deadline = time.perf_counter() + SECONDS
    while not await _waits_only_for(session, address, last.task) and time.perf_counter() < deadline:
        await asyncio.sleep(0.2)
    begun = time.perf_counter()
    await asyncio.gather(*waiting, _until_go(session, address, last))
    return time.perf_counter() - begun


async def _until_go(session: Any, address: tuple[str, int], report: Report) -> None:
    known, deadline = 0, time.perf_counter() + SECONDS
    while time.perf_counter() < deadline:
        try:
            reply = await peers.send_report(session, address, report, known)
        except ConnectionError:
            await asyncio.sleep(RETRY_SECONDS)
            continue
        if reply.phase == "running":
            return
        if reply.phase == "failed":
            raise SystemExit(reply.message)
        known = reply.version
    raise SystemExit(f"{report.task} did not get the order to start within {SECONDS:g} s")


async def _waits_only_for(session: Any, address: tuple[str, int], last: str) -> bool:
    try:
        async with session.get(f"http://{address[0]}:{address[1]}/status") as response:
            waiting = (await response.json()).get("waiting_for")
            return waiting is not None and waiting.startswith(f"{last}:") and ";" not in waiting
    except (OSError, ClientError):
        return False  # the chief is still starting
