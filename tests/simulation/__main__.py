"""Runs histories, each by its seed: `python -m tests.simulation [HISTORIES] [SEED]`."""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import time
from pathlib import Path

from tests.simulation import trace
from tests.simulation.children import Trainings
from tests.simulation.world import Machine, World
from trainer.job.errors import Exit
from trainer.job.load import build

FOLDER = Path("/dev/shm/trainer-simulation")  # noqa: S108


async def keep(world: World, task: str) -> None:
    """Starts a task, and starts it again as a target does."""
    machine, pause = world.machine(), 0.2
    while True:
        supervisor = world.start(task, machine)
        code = await asyncio.shield(supervisor.ended)
        if world.stopping or (code is not None and not Exit(code).retryable):
            return
        await asyncio.sleep(pause)
        pause = min(2 * pause, 10.0)


def run(seed: int) -> trace.History:
    rng = random.Random(seed)
    folder = FOLDER / str(seed)
    shutil.rmtree(folder, ignore_errors=True)
    deadlines = {"start": 20, "rejoin": 20, "hang": 5, "progress": 10, "task_lost": 5, "chief_lost": 20, "evaluation": 10, "stop": 3}
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 3}, "page": "none",
                  "deadlines": deadlines, "train": {"steps": 20, "checkpoint_steps": 5}, "model_dir": str(folder)})
    world = World(spec, rng, folder)
    world.changed = asyncio.Event()
    world.trainings = Trainings(world)
    asyncio._set_running_loop(None)

    async def history() -> None:
        tasks = [world.spawn(keep(world, task)) for task in world.tasks]
        await asyncio.wait(tasks, timeout=300)

    with world.doors():
        world.loop.run_until_complete(history())
    world.history.ended = world.loop.now
    for each in world.loop.errors:
        raise each
    world.loop.close()
    return world.history


if __name__ == "__main__":
    begun = time.monotonic()
    count, first = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        found = run(seed)
    if count == 1:
        for event in found.events:
            print(event)
    print(found.outcome, found.ended, count / (time.monotonic() - begun), "a second")
