"""A chief's place: it waits for the one before, keeps the lease, and ends at once when another one has taken it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from trainer.model_dir.lease import RELEASE_SECONDS, RENEW_SECONDS, Predecessor
from trainer.protocol.log_lines import log_line

if TYPE_CHECKING:
    from trainer.supervisor.chief.saved_state import Record
    from trainer.supervisor.rendezvous.state_machine import Rendezvous
    from trainer.supervisor.task.agent import Agent

LEASE_POLL_SECONDS = 0.5


async def wait_for(predecessor: Predecessor, agent: Agent) -> None:
    """Waits until the chief before this one, which was asked to stop, has saved; or until this one is asked to."""
    begun, seconds = agent.clock(), agent.spec.deadlines.stop + RELEASE_SECONDS
    log_line(f"waiting: the chief before this one was asked to stop, and saves; at most {seconds:g} s")
    while agent.leaving_since is None and agent.clock() - begun < seconds:
        # In a thread: the volume may be slow.
        if not await asyncio.to_thread(predecessor.saves):
            return
        await agent.wait_for_change(LEASE_POLL_SECONDS)


async def keep(record: Record, agent: Agent, lose: Callable[[], None]) -> None:
    """Renews the lease until it is released.

    Args:
        lose: called when another chief has taken it.
    """
    stop = asyncio.create_task(agent.leaves.wait())
    try:
        while record.refusal is None:
            leaving = agent.leaving_since is not None
            held = await asyncio.to_thread(record.renew, leaving)
            if record.lease.released:
                return
            if not held:
                lose()
                return
            next_at = agent.clock() + RENEW_SECONDS
            while agent.clock() < next_at and leaving == (agent.leaving_since is not None):
                record.take_lock()
                if leaving:
                    await asyncio.sleep(LEASE_POLL_SECONDS)
                else:  # a pod that takes its place may start at once, and must find that this one still saves
                    await asyncio.wait({stop}, timeout=LEASE_POLL_SECONDS)
    finally:
        stop.cancel()


def give_up_place(rendezvous: Rendezvous, agent: Agent) -> None:
    """Another chief has taken this one's place: the tasks learn from it how the job ends, whatever this one knows."""
    rendezvous.lose_place()
    agent.kill_children()
    agent.changed.set()
