"""Kubernetes as a target. Methods import the client only if they need it; rendering does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from trainer.debug.archive import Archive
from trainer.debug.facts import Facts
from trainer.job.spec import JobSpec
from trainer.model_dir.stacks import Stacks
from trainer.targets.base import Deleted, Job, JobOverview, Listed, LogLine, Submitted
from trainer.targets.kubernetes import render

T = TypeVar("T")


@dataclass(frozen=True)
class Kubernetes:
    """The cluster of the current kubectl context, or the one around this pod."""

    namespace: str | None = None
    """Default the context's."""

    def check(self, spec: JobSpec) -> None:
        render.render(spec, "trainer check")

    def warnings(self, spec: JobSpec) -> list[str]:
        return render.warnings(spec)

    def render(self, jobs: Sequence[tuple[str, JobSpec]], command: str) -> str:
        return "".join(render.render(spec, command) for _, spec in jobs)

    def submit(self, spec: JobSpec, command: str, dry_run: bool = False) -> Submitted:
        from trainer.targets.kubernetes import lifecycle

        return asyncio.run(lifecycle.submit(spec, self.namespace, command, dry_run))

    def jobs(self) -> Sequence[Listed]:
        from trainer.targets.kubernetes import status

        return asyncio.run(status.jobs(self.namespace))

    def status(self, job: Job) -> JobOverview:
        from trainer.targets.kubernetes import status

        return asyncio.run(status.status(job.name, self.namespace))

    def stacks(self, job: Job) -> Stacks:
        from trainer.targets.kubernetes import status

        return asyncio.run(status.stacks(job.name, self.namespace))

    def logs(self, job: Job, task: str | None = None, follow: bool = False) -> Iterator[LogLine]:
        from trainer.targets.kubernetes import logs

        return each(logs.logs(job.name, self.namespace, task, follow))

    def delete(self, job: Job, volumes: bool = False) -> Deleted:
        from trainer.targets.kubernetes import lifecycle

        return asyncio.run(lifecycle.delete(job.name, self.namespace, volumes))

    def debug(self, job: Job, archive: Archive) -> Facts:
        from trainer.targets.kubernetes import debug

        return asyncio.run(debug.collect(archive, job.name, self.namespace))


def each(values: AsyncIterator[T]) -> Generator[T]:
    """The values of an asynchronous iterator. Its event loop runs only while the caller waits for the next value."""

    async def following() -> tuple[T, ...]:
        try:
            return (await anext(values),)
        except StopAsyncIteration:
            return ()

    loop = asyncio.new_event_loop()
    try:
        while found := loop.run_until_complete(following()):
            yield from found
    finally:
        # Tasks may still run after Ctrl-C, or if the caller stops early.
        loop.run_until_complete(_cancel_all())
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _cancel_all() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
