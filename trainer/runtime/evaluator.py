"""The evaluator: outside the cluster, scores every checkpoint it gets to and always the last one."""

from __future__ import annotations

import queue
from pathlib import Path

from trainer.runtime import checkpoint, training
from trainer.runtime.channel import Channel
from trainer.runtime.curve import Curve, read
from trainer.runtime.training import Setup

POLL_SECONDS = 1.0


def run(setup: Setup, _resume_step: int, channel: Channel) -> None:
    """Scores new checkpoints until the order {"final": step} came and that step is scored.

    Raises:
        UserError: a checkpoint does not fit the spec.
    """
    training.prepare_process(setup)
    directory = setup.spec.directory
    scored = {record["step"] for record in read(Path(directory) / "evaluation.jsonl")}
    curve = Curve(directory, "evaluation", max(scored, default=0))
    final: int | None = None
    while final is None or final not in scored:
        new = [step for step in checkpoint.steps(directory) if step not in scored]
        if new:
            _score(setup, channel, curve, new[-1])
            scored.add(new[-1])
        elif final is not None:
            break
        try:
            final = channel.orders.get(timeout=0 if new else POLL_SECONDS)["final"]
        except queue.Empty:
            continue
    channel.tell("done", step=final)


def _score(setup: Setup, channel: Channel, curve: Curve, step: int) -> None:
    found = checkpoint.verify(checkpoint.folder(setup.spec.directory) / f"step-{step:08d}")
    if found is None:
        # Pruned while we looked, or damaged; the chief says so when it restores.
        return
    if different := checkpoint.differences(found.meta, setup.spec):
        raise checkpoint.refusal(found.meta, setup.spec.directory, different)
    _, figures = training.evaluate(setup, checkpoint.read(found))
    curve.add(step, figures)
    text = " ".join(f"{name}={value:.4f}" for name, value in figures.items())
    channel.tell("scored", step=step, **figures)
    channel.tell("line", text=f"checkpoint {step}: test {text}")
