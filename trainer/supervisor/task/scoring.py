"""The evaluator's supervisor: keeps a child scoring checkpoints, and ensures that the last one is scored.

No failure of the evaluator ends the job. The result of the training is valid without it, and has a warning.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from trainer import clocks
from trainer.job.errors import Exit
from trainer.model_dir import result
from trainer.protocol.facts import Cause, Loss
from trainer.protocol.log_lines import log_error
from trainer.protocol.reports import Reply
from trainer.supervisor.task.figures import best_of

if TYPE_CHECKING:
    from trainer.supervisor.task.agent import Agent

SCORE_POLL_SECONDS = 1.0


async def keep_scoring(agent: Agent, reply: Reply) -> None:
    """Keeps a child scoring, across generations; restarts it up to max_restarts times without a new score."""
    agent.phase = reply.phase
    if agent.copying:
        return
    child = agent.running
    if child is not None:
        child.generation = reply.generation
    # Before the first step there is nothing to score, and the import would slow down the tasks that train.
    if reply.phase == "running" and reply.step and agent.leaving_since is None:
        if child is None:
            await agent.go(reply.generation, reply.resume_step)
        elif not child.alive and agent.stillborn <= agent.spec.max_restarts:
            await agent.go_again(reply.generation, reply.resume_step)
    await agent.look_after_children()


async def score_last(agent: Agent, reply: Reply) -> Exit:
    """Waits for the score of the last checkpoint after successful training, for deadlines.evaluation seconds.

    Failures become a warning in result.json. Exporters run nevertheless; in a process of their own if the attempt to
    score ended the previous one.
    """
    spec, name = agent.spec, agent.task.name
    why = await _attempts(agent, reply, score=True)
    if why is not None and agent.leaving_since is None and spec.api_traits.estimator:
        last = agent.running
        if last is None or last.failure is None:  # with one, the exporters did run
            left_out = await _attempts(agent, reply, score=False)
            why = why if left_out is None else f"{why}; nor did its exporters run: {left_out}"
    if agent.leaving_since is not None and why is not None:
        return Exit.STOPPED
    if why is None:
        result.set_warning(spec.directory, name, None)
        child = agent.running
        if child is not None and child.result is not None and (best := best_of(child.result)):
            result.set_best(spec.directory, asdict(best))
        return Exit.OK
    warning = f"{name} did not score the last checkpoint, of step {reply.step}: {why}"
    result.set_warning(spec.directory, name, warning)
    log_error(f"{warning}; the result of the training is valid")
    return Exit.EVALUATION


async def _attempts(agent: Agent, reply: Reply, *, score: bool) -> str | None:
    """Why the last checkpoint is not scored; None if it is. A child that dies is restarted up to max_restarts times."""
    deadlines = agent.spec.deadlines
    # The exporters' own process is new: its start does not count as evaluation.
    seconds = deadlines.evaluation + (0 if score else deadlines.start)
    deadline = clocks.monotonic() + seconds
    for _ in range(1 + agent.spec.max_restarts):
        child = agent.running
        if child is None or not child.alive:
            await agent.go(reply.generation, reply.resume_step)
            child = agent.running
        assert child is not None
        child.finalise(reply.step, score)
        while child.alive:
            if agent.leaving_since is not None:
                child.kill()
            elif clocks.monotonic() > deadline:
                child.kill(Loss(Cause.OVERDUE, seconds=seconds, setting="deadlines.evaluation"))
            await agent.look_after_children()
            await agent.wait_for_change(SCORE_POLL_SECONDS)
        await child.ended()
        why = None if child.result is not None else str(child.loss())
        if why is None or child.failure is not None:
            break  # a Python error would repeat
        if agent.leaving_since is not None or clocks.monotonic() > deadline:
            break
    return why
