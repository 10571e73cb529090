"""Reads the logs of a job's pods."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator

from trainer.targets import tasks
from trainer.targets.base import LogLine
from trainer.targets.kubernetes import lookup, pods
from trainer.targets.kubernetes.api_server import ApiServer, connect
from trainer.targets.kubernetes.lookup import chief, of
from trainer.targets.kubernetes.objects import Pod

LAST_LINES_SECONDS = 10.0
"""How long no line may come, after the job's end, until the logs are taken as complete."""


async def logs(name: str, namespace: str | None, task: str | None, follow: bool) -> AsyncIterator[LogLine]:
    """Lines in the order of time; with `follow` as they arrive, including those of new pods, until the job is over.

    Raises:
        UserError: there is no such task.
        TrainerError: Exit.TARGET, if there is no cluster, or no such job.
    """
    async with connect(namespace) as server:
        await chief(server, name)
        if task is not None:
            tasks.require(task, name, [*pods.tasks(await lookup.jobs(server, of(name)), [], [], [])])
        if not follow:
            read = [await _all_lines(server, pod) for pod in await _pods(server, name, task)]
            for _, source, text in heapq.merge(*read):
                yield LogLine(source, text)
            return
        queue: asyncio.Queue[tuple[str, str, str] | None] = asyncio.Queue()
        following = asyncio.create_task(_follow(server, name, task, queue))
        try:
            while each := await queue.get():
                yield LogLine(*each[1:])
            await following
        finally:
            following.cancel()


async def _pods(server: ApiServer, name: str, task: str | None) -> list[Pod]:
    """Pods whose container has started, so that there may be a log."""
    its_pods = await lookup.pods(server, name)
    return [pod for pod in its_pods if _started(pod) and task in (None, pods.task_of(pod))]


def _started(pod: Pod) -> bool:
    state = pods.state_of(pod)
    return "running" in state or "terminated" in state


async def _lines(server: ApiServer, pod: Pod, follow: bool) -> AsyncIterator[tuple[str, str, str]]:
    """(time, task, line) of a pod."""
    task = pods.task_of(pod)
    async for line in server.log(pod["metadata"]["name"], follow):
        when, _, text = line.partition(" ")
        yield when, task, text


async def _all_lines(server: ApiServer, pod: Pod) -> list[tuple[str, str, str]]:
    return [line async for line in _lines(server, pod, follow=False)]


async def _follow(
    server: ApiServer, name: str, task: str | None, queue: asyncio.Queue[tuple[str, str, str] | None]
) -> None:
    """Puts every line of every pod into the queue, and None after the last."""
    readers: dict[str, asyncio.Task[None]] = {}
    lines = 0

    async def read(pod: Pod) -> None:
        nonlocal lines
        async for each in _lines(server, pod, True):
            await queue.put(each)
            lines += 1

    async def read_the_rest() -> None:
        """Reads until all logs have ended, or no line comes for some time: that of a pod on a lost node has no end."""
        seen, following = -1, set(readers.values())
        while following and lines > seen:
            seen = lines
            _, following = await asyncio.wait(following, timeout=LAST_LINES_SECONDS)
        for reader in readers.values():
            if reader.done():
                reader.result()

    try:
        while True:
            over = pods.ended(await chief(server, name))
            for pod in await _pods(server, name, task):
                key = pod["metadata"]["uid"]
                if key not in readers:
                    readers[key] = asyncio.create_task(read(pod))
            if over:
                await read_the_rest()
                return
            await asyncio.sleep(1)
    finally:
        for reader in readers.values():
            reader.cancel()
        await queue.put(None)
