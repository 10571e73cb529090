"""Connects to every task at its address in TF_CONFIG: a cluster forms only if its tasks can reach each other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from aiohttp import ClientSession

from trainer.job.cluster import Task
from trainer.job.names import task_name
from trainer.protocol.log_lines import log_line
from trainer.protocol.signature import NOT_SIGNED
from trainer.supervisor.control_port import peers
from trainer.supervisor.rendezvous.state_machine import Rendezvous

REFUSALS_LOGGED = 50
REASONS = {"is too long": "too_long", "is not a report": "malformed", NOT_SIGNED: "unsigned"}
"""Short names of the reasons of refusals (server.py), for /metrics."""
ABSENT_SECONDS = 5.0
"""Interval between two attempts to connect to a task that has never reported, which only tell why it is missing."""


class Dialler:
    """Passes its results to the rendezvous; `changed` is called after each."""

    def __init__(
        self, job: str, task: Task, rendezvous: Rendezvous, clock: Callable[[], float], changed: Callable[[], None]
    ) -> None:
        self._job, self._rendezvous, self._clock, self._changed = job, rendezvous, clock, changed
        self._addresses = {task_name(*member): task.control_address(*member) for member in task.members()}
        self._dialling: dict[str, asyncio.Task[None]] = {}
        self._not_before: dict[str, float] = {}
        """When each task that has never reported may be dialled again."""
        self._refused: set[tuple[str, str]] = set()
        self.refusals: Counter[str] = Counter()
        """Refused reports by the name of the reason."""
        self._unsigned: dict[str, str] = {}
        """The last refused report, by the task that it claims to come from."""

    def dial(self, session: ClientSession) -> None:
        """Starts to connect to every task whose address is not verified yet."""
        now = self._clock()
        for name, address in self._addresses.items():
            member = self._rendezvous.tasks.members.get(name)
            proven = member is not None and member.problem is None
            if proven or (member is None and now < self._not_before.get(name, now)):
                continue
            if name not in self._dialling or self._dialling[name].done():
                self._not_before[name] = now + ABSENT_SECONDS
                self._dialling[name] = asyncio.create_task(self.dial_back(session, name, address))

    async def dial_back(self, session: ClientSession, name: str, address: tuple[str, int]) -> None:
        member = self._rendezvous.tasks.members.get(name)
        try:
            identity = await peers.who_is_there(session, address)
        except ConnectionError as error:
            problem: str | None = str(error)
        else:
            there = f"{identity.job} {identity.task}"
            wanted = f"{self._job} {name}"
            problem = None if there == wanted else f"at {address[0]}:{address[1]} is {there}, not {wanted}"
            if problem is None and member and identity.incarnation != member.report.incarnation:
                problem = f"at {address[0]}:{address[1]} another process claims to be {name}"
        if member is None:
            why = problem or "its supervisor is running, but has not reported yet"
            self._rendezvous.tasks.unreachable[name] = "; ".join(filter(None, (why, self._unsigned.get(name))))
        else:
            self._rendezvous.reachable(name, member.report.incarnation, problem, self._clock())
        self._changed()

    def refuse(self, peer: str, task: str, why: str) -> None:
        """Counts and logs a refused request, one line for each peer and reason. It has no other effect, because any
        program may send one."""
        self.refusals[REASONS[why]] += 1
        if task in self._addresses:
            self._unsigned[task] = f"a report from {peer} as {task} {why}"
        if (peer, why) not in self._refused and len(self._refused) < REFUSALS_LOGGED:
            self._refused.add((peer, why))
            log_line(f"refused a report from {peer}{f' as {task}' if task in self._addresses else ''}: it {why}")
