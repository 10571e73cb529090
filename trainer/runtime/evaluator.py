"""The evaluator: outside the cluster, scores every checkpoint it gets to and always the last one."""

from __future__ import annotations

import queue
import time
from pathlib import Path
from typing import Any, NamedTuple

from trainer.job.spec import JobSpec
from trainer.job.tf_config import Task
from trainer.runtime import checkpoint, exports, training
from trainer.runtime.channel import Channel
from trainer.runtime.curve import Curve, read
from trainer.runtime.training import Load, Setup

POLL_SECONDS = 1.0


def run(spec: JobSpec, _task: Task, load: Load, _resume_step: int, channel: Channel) -> None:
    """Scores new checkpoints until the order {"final": step} came and that step is scored.

    Raises:
        UserError: a checkpoint does not fit the spec.
    """
    setup = load()
    directory = spec.directory
    throttle = setup.workload.eval_spec.throttle_secs if setup.workload.eval_spec else 0.0
    scored = {record["step"] for record in read(Path(directory) / "evaluation.jsonl")}
    curve = Curve(directory, "evaluation", max(scored, default=0))
    final: int | None = None
    newest: Evaluated | None = None
    next_at = 0.0
    while final is None or final not in scored:
        new = [step for step in checkpoint.steps(directory) if step not in scored]
        now = time.monotonic()
        look = bool(new) and (final is not None or now >= next_at)
        if look:
            newest = _evaluate(setup, new[-1]) or newest
            if newest and newest.step == new[-1]:
                _tell(channel, curve, newest)
                exports.run_exporters(setup, newest.model, newest.figures, last=False)
            scored.add(new[-1])
            next_at = now + throttle
        elif final is not None:
            break
        try:
            final = channel.orders.get(timeout=0 if look else POLL_SECONDS)["final"]
        except queue.Empty:
            continue
    # Which one is the last is told only now: often it is scored already.
    last = newest if newest and newest.step == final else _evaluate(setup, final)
    if last is not None:
        exports.run_exporters(setup, last.model, last.figures, last=True)
    channel.tell("done", step=final)


class Evaluated(NamedTuple):
    step: int
    model: Any
    figures: dict[str, float]


def _evaluate(setup: Setup, step: int) -> Evaluated | None:
    found = checkpoint.verify(checkpoint.folder(setup.spec.directory) / f"step-{step:08d}")
    if found is None:
        # Pruned while we looked, or damaged; the chief says so when it restores.
        return None
    if different := checkpoint.differences(found.meta, setup.spec):
        raise checkpoint.refusal(found.meta, setup.spec.directory, different)
    return Evaluated(step, *training.evaluate(setup, checkpoint.read(found)))


def _tell(channel: Channel, curve: Curve, found: Evaluated) -> None:
    curve.add(found.step, found.figures)
    text = " ".join(f"{name}={value:.4f}" for name, value in found.figures.items())
    channel.tell("scored", step=found.step, **found.figures)
    channel.tell("line", text=f"checkpoint {found.step}: test {text}")
