"""One history: a job, what the world does to it, and how it came out. All of it follows from a seed."""

from __future__ import annotations

import asyncio
import functools
import os
import random
from dataclasses import dataclass
from math import inf
from unittest import mock

from tests.simulation import faults, trace
from tests.simulation.faults import Fault
from tests.simulation.world import RUN, World
from trainer.job import environment
from trainer.job.errors import Exit
from trainer.job.load import build
from trainer.job.spec import JobSpec

PATIENCE = 600.0
"""Seconds after the last fault after which the world ends a history that does not end."""
KUBERNETES = {environment.HANDS_OVER: "1", environment.FOLLOWS: "1"}
DELAY_SECONDS = 2.0
CLUSTERS: list[dict[str, int]] = [
    {"worker": 2},
    {"worker": 3},
    {"chief": 1, "worker": 2},
    {"worker": 2, "evaluator": 1},
    {"chief": 1, "worker": 2, "ps": 1},
]
STARTS = 9
"""How often a target starts a task: on Kubernetes `backoffLimit`, on compose `on-failure:N`."""


@dataclass(frozen=True)
class Case:
    """What a history is made of."""

    seed: int
    spec: JobSpec
    on_kubernetes: bool
    plan: tuple[Fault, ...]
    late: tuple[tuple[str, float], ...]
    """Tasks that are started late, and by how many seconds."""
    steps: int = 6
    checkpoint_steps: int = 3
    """As in the spec; it has none of a program."""
    schedule: int = 0
    """Seed of all else that is left to chance: how long messages and steps take."""
    delays: tuple[int, ...] = ()
    """Numbers of messages that take DELAY_SECONDS."""


DEADLINES: dict[str, float] = {
    "start": 20,
    "rejoin": 20,
    "hang": 4,
    "task_lost": 4,
    "chief_lost": 20,
    "evaluation": 10,
    "stop": 3,
}


@functools.cache
def small(tasks: tuple[tuple[str, int], ...], steps: int, every: int, max_restarts: int, progress: int) -> JobSpec:
    """The spec of a job of seconds; of one with a program if it has 0 steps: a program decides that itself."""
    train = {"train": {"steps": steps, "checkpoint_steps": every}}
    program = {"program": ["true"], "code": [], "working_dir": "/"}
    return build(
        {
            "name": "j",
            "strategy": "parameter_server" if "ps" in dict(tasks) else "multi_worker_mirrored",
            "tasks": dict(tasks),
            "page": "none",
            "deadlines": {**DEADLINES, "progress": progress},
            "max_restarts": max_restarts,
            "model_dir": "/simulated",
            **(train if steps else program),
        }
    )


def case(seed: int) -> Case:
    rng = random.Random(seed)
    tasks = rng.choice(CLUSTERS)
    steps, every, restarts, progress = (rng.choice(each) for each in ([6, 10, 20], [3, 5], [0, 1, 3, 3], [8, 25]))
    program = "evaluator" not in tasks and rng.random() < 0.2
    spec = small(tuple(tasks.items()), 0 if program else steps, every, restarts, progress)
    names = [f"{kind}:{i}" for kind in ("chief", "worker", "ps", "evaluator") for i in range(tasks.get(kind, 0))]
    late = tuple((name, rng.uniform(0, 10)) for name in names if rng.random() < 0.05)
    return Case(seed, spec, rng.random() < 0.6, tuple(faults.plan(rng, names)), late, steps, every)


def run(what: Case) -> trace.History:
    """
    Raises:
        Exception: a defect in the code that was simulated, or in the simulation.
    """
    world = World(what.spec, what.steps, what.checkpoint_steps, random.Random(f"{what.seed} {what.schedule}"))
    world.history.on_kubernetes = what.on_kubernetes
    world.network.delays = dict.fromkeys(what.delays, DELAY_SECONDS)
    if what.delays:
        world.history.events.append(trace.Fault(0.0, "", 0, "reorder", inf))
    environ = {**(KUBERNETES if what.on_kubernetes else {}), environment.RUN: RUN}
    with mock.patch.dict(os.environ, environ), world.doors():
        world.loop.run_until_complete(_history(world, what))
        history = world.history
        history.left = [f"process {each.number}" for each in world.supervisors if not each.dead]
        history.left += [f"child {child.number}" for each in world.supervisors for child in each.children if child.runs]
        world.loop.forget()
    if world.loop.errors:
        raise world.loop.errors[0]
    history.ended = world.loop.now
    history.faults_over = max((fault.at + fault.seconds for fault in what.plan), default=0.0)
    history.files = {path.rpartition("/")[2]: file.body for path, file in world.disk.files.items()}
    return history


async def _history(world: World, what: Case) -> None:
    late = dict(what.late)
    kept = [world.spawn(_keep(world, task, late.get(task, 0.0))) for task in world.tasks]
    for fault in what.plan:
        world.loop.call_at(fault.at, faults.begin, world, fault)
    over = max((fault.at + fault.seconds for fault in what.plan), default=0.0)
    await asyncio.wait(kept, timeout=over + PATIENCE)
    zombies = [each.ended for each in world.supervisors if not each.ended.done()]
    if zombies:
        await asyncio.wait(zombies, timeout=60)


async def _keep(world: World, task: str, late: float) -> None:
    """Starts a task, and starts it again as a target does."""
    await asyncio.sleep(late)
    machine, pause = world.machine(), 0.2
    for _ in range(STARTS):
        if world.stopping:
            return
        supervisor = world.start(task, machine)
        gone = world.replaced[task] = world.loop.create_future()
        await asyncio.wait([supervisor.ended, gone], return_when=asyncio.FIRST_COMPLETED)
        if supervisor.ended.done():
            code = supervisor.ended.result()
            if world.stopping or (code is not None and not Exit(code).retryable):
                return
            await asyncio.sleep(pause)
            pause = min(2 * pause, 10.0)
        else:
            machine = world.machine()
            await asyncio.sleep(gone.result())
            if supervisor.ended.done() and supervisor.ended.result() == 0:
                return
