"""Status view: the chief's picture of the job as /status shows it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trainer.supervisor.rendezvous import Rendezvous


def tasks(rendezvous: Rendezvous, now: float) -> dict[str, Any]:
    """One row per task, required or not."""
    return {name: _row(rendezvous, name, now) for name in (*rendezvous.required, *rendezvous.evaluators)}


def _row(rendezvous: Rendezvous, name: str, now: float) -> dict[str, Any]:
    member = rendezvous.members.get(name)
    if member is None:
        return {"state": "absent", "generation": 0, "restarts": 0}
    lost = now - member.seen > rendezvous.spec.deadlines.task_lost
    running = member.report.generation == rendezvous.generation and rendezvous.phase == "running"
    state = "done" if rendezvous.phase == "done" else "lost" if lost else "running" if running else "waiting"
    report = asdict(member.report)
    return {**report["status"], "state": state, **{k: report[k] for k in ("generation", "restarts", "standby")}}
