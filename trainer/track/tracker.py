"""Follows a job by the files of its model_dir and sends it to MLflow, until it has ended and all is sent.

The files are the queue: a server that is away for hours misses nothing. What the server has already is asked of it at
each start, so a step that is trained again after a loss is not sent again.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from trainer.job.errors import Exit, UserError
from trainer.job.spec import JobSpec
from trainer.job.tracking import Tracking
from trainer.protocol.log_lines import log_line
from trainer.track import story
from trainer.track.identity import Identity
from trainer.track.sender import Memory, Sender
from trainer.track.server import MLflow, Refused, Unavailable
from trainer.track.stop import Stop
from trainer.track.story import Story

SEND_SECONDS = 2.0
"""Between two looks for what is new."""
PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds until a server that does not answer is asked again; the last one repeats."""
ENDING_SECONDS = 0.5
"""The same after the job's end."""


@dataclass(frozen=True)
class Asked:
    """What the command line asks for."""

    model_dir: str
    mlflow: str | None = None
    experiment: str | None = None
    register: str | None = None
    """These three take the place of those in the spec."""
    keep: bool = False
    """Goes on after the job's end, until SIGTERM: the job may begin again."""
    next: bool = False
    """A job is about to begin: an end that model_dir has already is an earlier one's."""
    wait: float = 60.0
    """Seconds to wait for a chief, where none works."""
    index: int = 0
    """Of the pod. Where the pods of all tasks are alike, that of the first one alone tracks."""


def main(asked: Asked, stop: Stop) -> Exit:
    """Sends a job; returns Exit.TARGET if the server lacks something of it.

    Raises:
        UserError: there is no job, no server is named, or another process sends the job.
    """
    life = Life(asked, stop)
    if asked.index:
        life.stop.wait(None)
        return Exit.STOPPED
    while (spec := _tracked(life)) is None:
        if life.stop.wait(0.5):
            return Exit.STOPPED
    with contextlib.closing(Identity(asked.model_dir)) as identity:
        return _Tracker(life, identity, spec).run()


def _tracked(life: Life) -> JobSpec | None:
    """The spec of the job, once it is known and a server is named.

    Raises:
        UserError: it is too late for that.
    """
    asked, spec = life.asked, story.spec(life.asked.model_dir)
    life.look()
    patient = asked.keep or not life.patience_is_over()
    try:
        if spec is not None:
            settings(asked, spec)
            return spec
    except UserError:
        # The job that is about to begin may name one.
        if not (patient and (asked.keep or asked.next)):
            raise
    if not patient:
        raise UserError(f"{asked.model_dir}: no job has begun there; name the model_dir of one, or raise --wait")
    return None


def settings(asked: Asked, spec: JobSpec) -> Tracking:
    """
    Raises:
        UserError: neither the spec nor the command line names a server.
    """
    given = spec.tracking
    if asked.mlflow is None and given is None:
        raise UserError(f"--mlflow: is missing: the spec of {asked.model_dir} has no tracking.mlflow; name the server")
    asked_for = {"mlflow": asked.mlflow, "experiment": asked.experiment, "register_as": asked.register}
    whole = {**(given.model_dump() if given else {}), **{name: text for name, text in asked_for.items() if text}}
    return Tracking.model_validate({**whole, "mlflow": str(whole["mlflow"]).rstrip("/")})


class Life:
    """When a job, and so its tracker, is over."""

    def __init__(self, asked: Asked, stop: Stop) -> None:
        self.asked, self.stop = asked, stop
        self._started = time.time()
        self._alive = time.monotonic()
        """When a chief was last seen to work, or this process began to look."""
        self._seen = False
        """Whether one was seen."""
        self._reader = story.Reader(asked.model_dir)

    def look(self) -> tuple[Story, bool]:
        """What has happened until now, and whether nothing more comes."""
        alive = story.runs(self.asked.model_dir)  # before its end is looked for
        if alive:
            self._alive, self._seen = time.monotonic(), True
        now = self._reader.read()
        ended = now.ended is not None and (self._seen or not self.asked.next or now.ended.time > self._started)
        if self.stop.wait(0):
            return now, ended or not alive
        return now, not self.asked.keep and not alive and (ended or self.patience_is_over())

    def patience_is_over(self) -> bool:
        """Whether no chief has worked for the time to wait for one."""
        return time.monotonic() - self._alive > self.asked.wait

    def pause(self, seconds: float) -> None:
        """Waits, if this process was asked to end for a short time: the job may not have ended yet."""
        if self.stop.wait(0):
            time.sleep(min(seconds, ENDING_SECONDS))
        else:
            self.stop.wait(seconds)


class _Tracker:
    def __init__(self, life: Life, identity: Identity, spec: JobSpec) -> None:
        self._life, self._identity, self._spec = life, identity, spec
        self._dir = life.asked.model_dir
        self._memory = Memory()
        self._problem, self._failures = "", 0
        self._failing_since = time.monotonic()
        """When the server did not answer for the first time after the end of the job."""
        self._shown = False

    def run(self) -> Exit:
        while True:
            given = settings(self._life.asked, self._spec)
            try:
                if not self._follow(MLflow(given.mlflow, self._spec.deadlines.notify), given):
                    return Exit.OK
                self._spec = story.spec(self._dir) or self._spec
            except (Unavailable, Refused) as error:
                if not self._problem:
                    log_line(f"warning: tracking.mlflow: {error}; it is asked again, and nothing is lost meanwhile")
                self._problem = str(error)
                if not self._waited():
                    missing = f"the run may lack its end, or its last figures: {self._problem}"
                    log_line(f"warning: tracking.mlflow: {missing}; `trainer track {self._dir}` sends them")
                    return Exit.TARGET

    def _waited(self) -> bool:
        """Waits until the server may be asked again; false if that was for the last time."""
        self._failures += 1
        until = time.monotonic() + PAUSES[min(self._failures, len(PAUSES)) - 1]
        while not self._life.look()[1]:
            self._failing_since = time.monotonic()
            if self._failing_since >= until:
                return True
            self._life.pause(ENDING_SECONDS)
        time.sleep(ENDING_SECONDS)
        return time.monotonic() - self._failing_since < self._spec.deadlines.notify

    def _follow(self, server: MLflow, given: Tracking) -> bool:
        """Sends what comes, until nothing more does. Returns whether the job has begun anew."""
        began, over = self._life.look()
        sender = Sender(server, self._spec, given, self._identity.id, self._memory)
        sender.open(began)
        if not self._shown:
            run = sender.run
            log_line(f"tracking.mlflow: {given.mlflow}/#/experiments/{run.experiment_id}/runs/{run.run_id}")
            self._shown = True
        while True:
            now, over = self._life.look()
            if now.began != began.began:
                return True
            self._identity.keep()
            sender.send(now)
            self._works(server)
            if over:
                if now.ended is None:
                    self._memory.warn(f"{self._dir}: its job has no end, and its chief is gone; the run stays RUNNING")
                return False
            self._life.pause(SEND_SECONDS)

    def _works(self, server: MLflow) -> None:
        if self._problem:
            log_line(f"tracking.mlflow: {server.host} answers again")
        self._problem, self._failures, self._failing_since = "", 0, time.monotonic()
