"""The curve of a program: what its chief has reported with a step, in reported.jsonl."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from trainer.job.errors import TrainerError
from trainer.model_dir import layout
from trainer.protocol.facts import Entry
from trainer.protocol.log_lines import log_line
from trainer.supervisor.views.snapshot import Snapshot

SPARSENESS = 0.001
"""Of the time that the job has run: so long at least from one line to the next. A month is 12,000 lines."""


class Reported:
    """Appends a line for a new step, at each snapshot at most."""

    def __init__(self, directory: str, require_lease: Callable[[], None]) -> None:
        """
        Args:
            require_lease: raises an error if another chief has taken this one's place.
        """
        self._directory, self._require_lease = directory, require_lease
        self._step: int | None = None
        self._time = 0.0
        self._complained = False

    def observe(self, snapshot: Snapshot, facts: Sequence[Entry]) -> None:
        job, passed = snapshot.job, snapshot.time - self._time
        if job.step is None or not job.figures or job.step == self._step:
            return
        if job.end is None and 0 <= passed < SPARSENESS * job.seconds:
            return
        row = {"step": job.step, **job.figures, "time": round(snapshot.time, 3)}
        try:
            self._require_lease()
            layout.make_own(self._directory)
            with layout.reported(self._directory).open("a") as file:
                file.write(json.dumps(row) + "\n")
        except TrainerError:
            return  # the other chief writes it
        except OSError as error:
            if not self._complained:
                path = layout.reported(self._directory)
                log_line(f"warning: {path}: cannot be written: {error.strerror}; the job goes on without it")
            self._complained = True
        self._step, self._time = job.step, snapshot.time
