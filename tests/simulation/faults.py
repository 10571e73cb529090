"""What the world does to a job: a plan, which is data, so that a history is replayed, and shortened, by its plan."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation import trace
from tests.simulation.network import spawn
from trainer.job.errors import Exit
from trainer.protocol import events
from trainer.protocol.reports import Report
from trainer.protocol.signature import NOT_SIGNED

if TYPE_CHECKING:
    from tests.simulation.children import SimulatedProcess
    from tests.simulation.world import Machine, Supervisor, World


BURST_SECONDS = 0.5
LOST_SECONDS = 2.5, 5.0
"""How long a target needs to take a machine for lost, and start its task on another one; in truth it takes longer."""


@dataclass(frozen=True)
class Fault:
    at: float
    kind: str
    task: str
    seconds: float
    """How long it lasts, where it does."""
    amount: float
    """From 0 to 1: how bad it is."""

    def __str__(self) -> str:
        return f"{self.kind} of {self.task or 'all'} at {self.at:.2f} s, for {self.seconds:.1f} s, {self.amount:.2f}"


def plan(rng: random.Random, tasks: list[str], *, most: int = 4) -> list[Fault]:
    """Faults at random moments, or one after another within a moment. Most histories have few, so that a job comes to
    its end."""
    number, burst = rng.choice([0, 1, 1, 2, 2, 3, most]), rng.random() < 0.25
    first = rng.uniform(0, 10)
    return sorted(
        (
            Fault(
                at=first + rng.uniform(0, BURST_SECONDS) if burst else rng.uniform(0, 10 if rng.random() < 0.9 else 30),
                kind=rng.choice(KINDS),
                task=rng.choice(tasks),
                seconds=rng.choice([0.5, 2, 4, 8, 15]) * rng.uniform(0.8, 1.2),
                amount=rng.random(),
            )
            for _ in range(number)
        ),
        key=lambda fault: fault.at,
    )


def begin(world: World, fault: Fault) -> None:
    """Does it, and has it end."""
    lasts = fault.kind in LASTING
    until = fault.at + (fault.seconds if lasts or fault.kind == "reorder" else 0.0)
    task = "" if fault.kind in EVERYWHERE else fault.task
    world.history.events.append(trace.Fault(world.loop.now, task, 0, fault.kind, until))
    if undo := FAULTS[fault.kind](world, fault):
        world.loop.call_later(fault.seconds, undo)


Undo = Callable[[], object]
Do = Callable[["World", Fault], Undo | None]


def _now(world: World, fault: Fault) -> Supervisor | None:
    """The newest process of the task that lives."""
    alive = [each for each in world.supervisors if each.task.name == fault.task and not each.dead]
    return alive[-1] if alive else None


def _child(world: World, fault: Fault) -> SimulatedProcess | None:
    who = _now(world, fault)
    alive = [each for each in who.children if each.runs] if who else []
    return alive[int(fault.amount * len(alive))] if alive else None


def _crash(world: World, fault: Fault) -> None:
    if child := _child(world, fault):
        child.die(-9, "world")


def _hang(world: World, fault: Fault) -> None:
    child = _child(world, fault)
    if child and (child.reported or not world.spec.program):  # docs/programs.md, Limits: else it is not noticed
        child.hangs = True


def _error(world: World, fault: Fault) -> None:
    """The user's code raises an exception, or the loss is no number."""
    child = _child(world, fault)
    if child and child.ready:
        code = Exit.DIVERGED if fault.amount < 0.5 else Exit.USER
        child.end(events.Failed(int(code), f"digits.py:7: an error of {fault.task}"), int(code))


def _errors(world: World, fault: Fault) -> None:
    """It does so in all tasks at one step, and not in each of them for the same reason."""
    for i, task in enumerate(world.tasks):
        _error(world, replace(fault, task=task, amount=(fault.amount + i / 2) % 1))


def _lie(world: World, fault: Fault) -> None:
    """The user's code writes to the pipe of the child's events."""
    if child := _child(world, fault):
        wrong = int(fault.amount * 1000) - 10
        for event in (events.Step(step=wrong), events.Saved(wrong, 0.0), events.Stopped(wrong), events.Trained()):
            child.send(event)


def _garbage(world: World, fault: Fault) -> None:
    """Strangers send what is no report, or one of a task that is not theirs."""
    chief = _now(world, replace(fault, task=world.history.tasks[0]))
    if chief is None or chief.chief is None or chief.backlog is not None:
        return
    leader, stranger = chief.chief, Report(fault.task, "stranger", "x", "x", "x", {})
    for why in ("is not a report", "is too long", NOT_SIGNED):
        chief.call(partial(leader.refuse, "10.0.0.9", fault.task, why))
    for wrong in (stranger, replace(stranger, task="worker:99"), replace(stranger, leaving=True, number=2**40)):
        spawn(world.loop, leader.answer(wrong, 0), chief)


def _deaf(world: World, fault: Fault) -> None:
    if child := _child(world, fault):
        child.deaf = True


def _kill(world: World, fault: Fault) -> None:
    if who := _now(world, fault):
        world.kill(who)


def _power(world: World, fault: Fault) -> None:
    if who := _now(world, fault):
        world.kill(who, power=True)
        if fault.task == world.history.tasks[0]:
            world.disk.power_fails()


def _stop(world: World, fault: Fault) -> None:
    """As an eviction does. A Job of Kubernetes may make the next pod while this one still ends."""
    if who := _now(world, fault):
        world.ask_to_stop(who)
        _kill_late(world, who)
        if world.history.on_kubernetes and fault.amount < 0.5:
            world.replace(who.task.name, world.rng.uniform(0.05, 1.0))


def _stop_all(world: World, fault: Fault) -> None:
    world.stopping = world.history.asked_to_stop = True
    for who in world.supervisors:
        world.ask_to_stop(who)
        _kill_late(world, who)


def _kill_late(world: World, who: Supervisor) -> None:
    """As a target does after its grace period, which is longer than deadlines.stop."""
    world.loop.call_later(world.spec.deadlines.stop + 15, world.kill, who)


def _freeze(world: World, fault: Fault) -> Undo | None:
    if (who := _now(world, fault)) is None:
        return None
    world.freeze(who)
    return lambda: world.thaw(who)


def _cut(world: World, fault: Fault) -> Undo | None:
    return None if (who := _now(world, fault)) is None else _cut_off(who.machine, fault.amount)


def _cut_off(machine: Machine, amount: float) -> Undo:
    machine.no_in, machine.no_out = amount < 0.7, amount > 0.3

    def undo() -> None:
        machine.no_in = machine.no_out = False

    return undo


def _zombie(world: World, fault: Fault) -> Undo | None:
    """Its node is cut off, and taken for lost: another process takes its place, and the old one comes back."""
    if (who := _now(world, fault)) is None:
        return None
    if fault.amount < 0.5:  # some still have its address
        world.network.former[who.task.name] = who
    world.replace(who.task.name, world.rng.uniform(*LOST_SECONDS))
    return _cut_off(who.machine, 0.5)


def _slow(world: World, fault: Fault) -> Undo:
    world.network.slowest = 0.003 + 4 * fault.amount**3
    return lambda: setattr(world.network, "slowest", 0.003)


def _lose(world: World, fault: Fault) -> Undo:
    world.network.losses = 0.5 * fault.amount
    return lambda: setattr(world.network, "losses", 0.0)


def _double(world: World, fault: Fault) -> Undo:
    world.network.doubles = fault.amount
    return lambda: setattr(world.network, "doubles", 0.0)


def _reorder(world: World, fault: Fault) -> None:
    """One of the next messages comes late, after others that were sent later."""
    world.network.delays[world.network.messages + 1 + int(fault.amount * 10)] = fault.seconds


def _clock(world: World, fault: Fault) -> None:
    """Its clock on the wall is set, or its monotonic one drifts."""
    if (who := _now(world, fault)) is None:
        return
    if fault.amount < 0.7:
        who.machine.wall += (fault.amount - 0.35) * 20_000
    else:
        who.machine.drift(world.loop.now, 1 + (fault.amount - 0.85) * 0.1)


def _full(world: World, fault: Fault) -> Undo:
    world.disk.full = True
    return lambda: setattr(world.disk, "full", False)


def _read_only(world: World, fault: Fault) -> Undo:
    world.disk.read_only = True
    return lambda: setattr(world.disk, "read_only", False)


def _slow_disk(world: World, fault: Fault) -> Undo:
    world.loop.slowest_call = 5 * fault.amount**2
    return lambda: setattr(world.loop, "slowest_call", 0.0)


FAULTS: dict[str, Do] = {
    "crash": _crash,
    "hang": _hang,
    "error": _error,
    "errors": _errors,
    "lie": _lie,
    "garbage": _garbage,
    "deaf": _deaf,
    "kill": _kill,
    "host": _power,
    "stop": _stop,
    "stop all": _stop_all,
    "freeze": _freeze,
    "cut": _cut,
    "zombie": _zombie,
    "slow": _slow,
    "lose": _lose,
    "double": _double,
    "reorder": _reorder,
    "clock": _clock,
    "disk full": _full,
    "disk read-only": _read_only,
    "disk slow": _slow_disk,
}
KINDS = tuple(FAULTS)
LASTING = {"freeze", "cut", "zombie", "slow", "lose", "double", "disk full", "disk read-only", "disk slow"}
EVERYWHERE = {"errors", "stop all", "slow", "lose", "double", "reorder", "disk full", "disk read-only", "disk slow"}
"""Faults that meet all tasks."""
