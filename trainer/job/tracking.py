"""The part of a job spec that names programs outside of the job: those that show its progress, or are told its end."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from trainer.job.errors import Outcome
from trainer.job.fields import Strict, Text, Word
from trainer.job.kubernetes import Variable


class Tracking(Strict):
    """Where `trainer track`, a process beside the chief, sends the job's figures and files. The job never waits for it,
    and never fails because of it."""

    mlflow: Text
    """Address of an MLflow tracking server, as http://mlflow:5000. The job is one run there, over all its restarts.
    Name and password are the variables MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN,
    under `secrets`; no task gets them."""
    experiment: Text | None = None
    """The experiment of the run, made if there is none. Default: the job's name."""
    register_as: Text | None = None
    """Makes the exported model a version of this registered model, when the job has succeeded."""


class Notify(Strict):
    """Where the chief reports the end of the job, once. What comes of it does not change the job's exit code."""

    webhook: Text | None = None
    """An http or https address that gets the report by POST, as JSON. Its field `text` is what Slack and Mattermost
    show."""
    webhook_from: Variable | None = None
    """The variable, one of `secrets`, that holds the address: who has that of a chat can write to it."""
    command: Annotated[list[Word], Field(min_length=1)] | None = None
    """A program and its arguments, which the chief's task runs with the report as JSON on standard input. $(NAME) is
    replaced by the task's environment variable of that name."""
    when: Annotated[list[Outcome], Field(min_length=1)] = ["done", "failed"]
    """The ends that are reported: done, failed, stopped. A pod that is evicted is stopped too, and its job goes on in
    another one."""
