"""Reads the logs of a job's pods."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import AsyncIterator

from trainer.targets import tasks
from trainer.targets.base import LogLine
from trainer.targets.kubernetes import lookup, pods
from trainer.targets.kubernetes.api_server import ApiServer, NodeSilent, connect
from trainer.targets.kubernetes.lookup import chief, of
from trainer.targets.kubernetes.objects import Pod
from trainer.targets.outage import NoAnswer, Outage, Refused

LAST_LINES_SECONDS = 10.0
"""How long no line may come, after the job's end, until the logs are taken as complete."""
AGAIN_SECONDS = 1.0
"""Between two looks for new pods, and two attempts to read a log."""


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
    return _readable(await lookup.pods(server, name), task)


def _readable(its_pods: list[Pod], task: str | None) -> list[Pod]:
    return [pod for pod in its_pods if _started(pod) and task in (None, pods.task_of(pod))]


def _started(pod: Pod) -> bool:
    state = pods.state_of(pod)
    return "running" in state or "terminated" in state


async def _lines(server: ApiServer, pod: Pod, follow: bool, since: str = "") -> AsyncIterator[tuple[str, str, str]]:
    """(time, task, line) of a pod.

    Args:
        since: the time of the last line that is known already.
    """
    task, more = pods.task_of(pod), {"sinceTime": since} if since else {}
    async for line in server.log(pod["metadata"]["name"], follow, **more):
        when, _, text = line.partition(" ")
        # The kubelet goes by whole seconds.
        if _digits(when) > _digits(since):
            yield when, task, text


def _digits(when: str) -> str:
    """A time of RFC 3339 in UTC as a text that can be compared: the nanoseconds come without the last zeros."""
    return when.rstrip("Z").replace(".", "").ljust(len("2026-01-01T00:00:00") + 9, "0") if when else ""


async def _runs(server: ApiServer, pod: Pod) -> bool:
    """Whether a pod's container still runs: it may write more lines, though its log has ended."""
    live = await server.read("Pod", pod["metadata"]["name"])
    return bool(live) and live["metadata"]["uid"] == pod["metadata"]["uid"] and "running" in pods.state_of(live)


async def _all_lines(server: ApiServer, pod: Pod) -> list[tuple[str, str, str]]:
    return [line async for line in _lines(server, pod, follow=False)]


async def _follow(
    server: ApiServer, name: str, task: str | None, queue: asyncio.Queue[tuple[str, str, str] | None]
) -> None:
    """Puts every line of every pod into the queue, and None after the last."""
    readers: dict[str, asyncio.Task[None]] = {}
    lines, outage = 0, Outage()

    async def read(pod: Pod) -> None:
        """Reads until the container has ended. A stream may break before, at a restart of the API server for one."""
        nonlocal lines
        last, said, runs, own = "", False, True, Outage(lambda _: None)
        while runs:
            try:
                async for each in _lines(server, pod, True, last):
                    await queue.put(each)
                    lines, last, said = lines + 1, each[0], False
                runs = await _runs(server, pod)
                own.over()
            except NodeSilent as error:
                if not said:
                    said = True
                    text = f"trainer: the log of {pod['metadata']['name']} cannot be read now: {error}"
                    await queue.put((last, pods.task_of(pod), text))
            except (NoAnswer, Refused) as error:
                own.lasts(error)  # the loop below says so
            if runs:
                await asyncio.sleep(AGAIN_SECONDS)

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
            try:
                its_chief = pods.chief_of(await lookup.jobs(server, of(name)))
                if its_chief is None:
                    raise lookup.no_such_job(server, name)
                its_pods = await lookup.pods(server, name)
                over = pods.over(its_chief[0], its_pods, its_chief[1])
                for pod in _readable(its_pods, task):
                    key = pod["metadata"]["uid"]
                    if key not in readers:
                        readers[key] = asyncio.create_task(read(pod))
                outage.over()
                if over:
                    await read_the_rest()
                    return
            except (NoAnswer, Refused) as error:
                outage.lasts(error)
            await asyncio.sleep(AGAIN_SECONDS)
    finally:
        for reader in readers.values():
            reader.cancel()
        await queue.put(None)
