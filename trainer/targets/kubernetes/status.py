"""The status of jobs, from the cluster and from the chief."""

from __future__ import annotations

from dataclasses import replace

from trainer.job.errors import Exit, outcome
from trainer.model_dir.files import json_object
from trainer.model_dir.result import Result, parse_brief
from trainer.model_dir.stacks import Stacks
from trainer.protocol.status import JobStatus
from trainer.targets.answers import read_stacks, read_status
from trainer.targets.base import ContainerState, JobOverview, Listed
from trainer.targets.container import probe
from trainer.targets.kubernetes import lookup, pods
from trainer.targets.kubernetes import parts as parts_of_job
from trainer.targets.kubernetes.api_server import ApiServer, connect
from trainer.targets.kubernetes.lookup import MANAGED, no_such_job, of
from trainer.targets.kubernetes.names import INSTANCE
from trainer.targets.kubernetes.objects import Job, Pod, State


async def status(name: str, namespace: str | None) -> JobOverview:
    """The status of a job: of its pods, and from the chief while it runs.

    Raises:
        TrainerError: Exit.TARGET, if there is no cluster or no such job.
    """
    async with connect(namespace) as server:
        return await of_job(server, name)


async def jobs(namespace: str | None) -> list[Listed]:
    """All jobs of a namespace, the oldest first."""
    async with connect(namespace) as server:
        parts = await lookup.jobs(server, MANAGED)
    by_name: dict[str, list[Job]] = {}
    for part in parts:
        by_name.setdefault(part["metadata"]["labels"][INSTANCE], []).append(part)
    rows = [
        Listed(
            job=name,
            phase=pods.ended(chief) or ("suspended" if chief["spec"].get("suspend") else "active"),
            submitted=chief["metadata"]["creationTimestamp"],
        )
        for name, parts in by_name.items()
        if (its_chief := pods.chief_of(parts))
        for chief in its_chief[:1]
    ]
    return sorted(rows, key=lambda row: row.submitted)


async def of_job(server: ApiServer, name: str) -> JobOverview:
    """
    Raises:
        TrainerError: as `status`.
    """
    parts = await lookup.jobs(server, of(name))
    if (its_chief := pods.chief_of(parts)) is None:
        raise no_such_job(server, name)
    chief_job, task = its_chief
    its_pods = await lookup.pods(server, name)
    rows = pods.tasks(parts, its_pods, await lookup.claims(server, name), await lookup.warnings(server))
    chief, last_line = pods.newest(its_pods, task), ""
    repeated = pods.failed_for_good(chief_job, its_pods, task)
    over = pods.over(chief_job, its_pods, task)
    # A Job that Kubernetes has failed may have no pod with an exit code.
    code = 0 if over != "failed" else rows[task].code or repeated or int(Exit.TARGET)
    warnings, unmade = ([], {}) if over else await parts_of_job.missing(server, name, chief_job, parts)
    rows |= unmade
    if over:
        rows = {task: _of_an_end(row) for task, row in rows.items()}
    known, result, unreadable = None, None, None
    if over and chief and rows[task].state != "pending":
        async for line in server.log(chief["metadata"]["name"], tailLines="1"):
            last_line = line.partition(" ")[2]
        if over == "done":
            result, unreadable = _result(pods.state_of(chief))
    elif chief and rows[task].state == "running":
        known, unreadable = read_status(await _ask(server, chief, "status"))
    return JobOverview(
        name=name,
        namespace=server.namespace,
        phase=outcome(code) if over else _phase(chief_job, rows[task].state, known),
        code=code,
        last_line=last_line,
        tasks=rows,
        job=known or result,
        unreadable=unreadable,
        warnings=warnings or None,
    )


def _of_an_end(row: ContainerState) -> ContainerState:
    """The row of a task after the job's end, which may have removed its pod; one that never had a pod keeps why."""
    if row.state != "missing" or pods.NO_POD not in (row.reason or ""):
        return row
    return replace(row, state="removed", reason="its pod was removed at or after the job's end")


def _result(state: State) -> tuple[Result | None, str | None]:
    """What the chief has left of its result, or why that cannot be read; neither if it has left nothing."""
    document = json_object(state["terminated"].get("message", "")) if "terminated" in state else {}
    try:
        return (parse_brief(document) if document else None), None
    except ValueError as error:
        return None, f"the chief's result cannot be read: {error}; use the version of trainer in its image"


async def stacks(name: str, namespace: str | None) -> Stacks:
    """The stacks of all tasks, from the chief.

    Raises:
        TrainerError: Exit.TARGET, if there is no cluster or no such job, or its chief does not run.
    """
    async with connect(namespace) as server:
        if (its_chief := pods.chief_of(await lookup.jobs(server, of(name)))) is None:
            raise no_such_job(server, name)
        chief = pods.newest(await lookup.pods(server, name), its_chief[1])
        return read_stacks(await _ask(server, chief, "stacks") if chief else "", name)


async def _ask(server: ApiServer, chief: Pod, path: str) -> str:
    """What the chief's control port answers; nothing if it does not."""
    return await server.execute(chief["metadata"]["name"], *_words(chief), path)


def _words(chief: Pod) -> tuple[str, ...]:
    """The command that asks it: only a program's container has a command of its own."""
    return probe(of_program=bool(pods.container_of(chief["spec"]).get("command")))


def _phase(chief_job: Job, state: str, job: JobStatus | None) -> str:
    """The phase of a job that is not over. A chief that has ended may get a new pod until its Job ends."""
    if chief_job["spec"].get("suspend"):
        return "suspended"
    if state in ("succeeded", "failed") or (job and job.phase in ("done", "failed")):
        return "ending"
    return job.phase if job else state
