"""Between the construction of a model and its results: the strategy's loop trains it."""

from __future__ import annotations

from trainer.protocol import events
from trainer.training.loops import keras_fit
from trainer.training.model.state import TrainState
from trainer.training.outputs.finish import Train, finish
from trainer.training.runtime.channel import Channel
from trainer.training.task import TrainingTask


def run(job: TrainingTask, state: TrainState, train: Train, channel: Channel) -> None:
    """Trains, in a call of the workload's fit() if the API has it; then the chief evaluates, exports and reports."""
    ended = keras_fit.run(job, state.model, train) if job.spec.api_traits.calls_fit else train(job)
    if ended.stopped:
        channel.send(events.Stopped(step=ended.step))
    else:
        finish(job, state, channel, ended)
