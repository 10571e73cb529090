"""What TensorBoard shows of a job besides its curves: what happened, as texts, and where each task's time goes.

The chief's supervisor writes it, into separate runs beside those of the child: so it has what happens while no child
runs, and jobs with a program. Each chief begins new files, and adds only what it sees itself, so nothing is written
twice.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from trainer.job.errors import TrainerError
from trainer.model_dir import layout
from trainer.model_dir.history import Mark
from trainer.protocol.log_lines import log_line
from trainer.protocol.status import Shares
from trainer.supervisor.live_page import event_file

JOB = "job"
"""The run with the texts, and the means of all tasks."""
MOST_TASKS = 64
"""That have a run each; for larger jobs there are only the means."""
MOST_PENDING = 10_000
"""Records that wait for a disk that does not answer."""


class Board:
    """Collects records, and writes them in a thread: model_dir may be on a volume that does not answer."""

    def __init__(self, model_dir: str, incarnation: str, require_lease: Callable[[], None]) -> None:
        self._folder, self._require_lease = layout.tensorboard(model_dir), require_lease
        # TensorBoard reads the files of a run in the order of their names.
        self._name = f"events.out.tfevents.{time.time():010.0f}.{socket.gethostname()}.{incarnation[:8]}"
        self._pending: deque[tuple[str, bytes]] = deque(maxlen=MOST_PENDING)
        self._writing: asyncio.Future[None] | None = None
        self._second, self._step, self._failed = -1, 0, False

    def mark(self, mark: Mark, step: int, seconds: float) -> None:
        """Adds what happened.

        Args:
            step: the last one of the job, for a mark that has none.
            seconds: since the start of the job.
        """
        # TensorBoard's fast loader drops what has no smaller step than a later value of the same tag, and a job that
        # goes back to a checkpoint repeats its steps. So the step of a text is the second of the job.
        self._second = max(self._second + 1, int(seconds))
        at = f"step {step if mark.step is None else mark.step}"
        whole = mark.text if at in mark.text else f"{at}: {mark.text}"
        # As code: a text may have characters that Markdown takes for its own.
        lines = "\n".join(f"    {line}" for line in whole.splitlines())
        self._pending.append((JOB, event_file.text(mark.time, self._second, f"events/{mark.kind or 'other'}", lines)))

    def shares(self, now: float, step: int, tasks: Mapping[str, Shares]) -> None:
        """Adds what share of its time each part of each task has, if there is a new step."""
        if step == self._step:
            return
        self._step = step
        found = {
            name: {part: value for part, value in vars(each).items() if value is not None}
            for name, each in tasks.items()
        }
        for name, parts in found.items() if len(found) <= MOST_TASKS else ():
            self._add_shares(name.replace(":", "-"), now, step, parts)
        columns: dict[str, list[float]] = {}
        for parts in found.values():
            for part, share in parts.items():
                columns.setdefault(part, []).append(share)
        self._add_shares(JOB, now, step, {part: sum(values) / len(values) for part, values in columns.items()})

    def _add_shares(self, run: str, now: float, step: int, parts: Mapping[str, float]) -> None:
        if parts:
            values = {f"share_of_time/{part}": share for part, share in parts.items()}
            self._pending.append((run, event_file.scalars(now, step, values)))

    def flush(self) -> None:
        """Begins to write what is pending, unless an earlier write has not ended yet."""
        if self._pending and (self._writing is None or self._writing.done()):
            rows, self._pending = [*self._pending], deque(maxlen=MOST_PENDING)
            self._writing = asyncio.ensure_future(asyncio.to_thread(self._write, rows))

    async def close(self, seconds: float) -> None:
        """Writes the rest, for that many seconds at most."""
        deadline = time.monotonic() + seconds
        for _ in range(2):  # a write that goes on, and the last one
            if self._writing is not None:
                await asyncio.wait({self._writing}, timeout=max(0.0, deadline - time.monotonic()))
            self.flush()

    def _write(self, rows: list[tuple[str, bytes]]) -> None:
        try:
            self._require_lease()
            for run in dict.fromkeys(run for run, _ in rows):
                self._append(self._folder / run / self._name, b"".join(record for name, record in rows if name == run))
        except TrainerError:
            pass  # another chief has taken this one's place
        except OSError as error:
            if not self._failed:
                why = f"{self._folder}: cannot be written: {error.strerror}"
                log_line(f"warning: {why}; TensorBoard will not show the job's events")
            self._failed = True

    def _append(self, path: Path, records: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(records if file.tell() else event_file.header(time.time()) + records)
