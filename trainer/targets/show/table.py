"""The live table of a job, drawn from the chief's /status. It imports Rich: only where there is a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Group
from rich.jupyter import JupyterMixin
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainer.job.messages import clock
from trainer.model_dir.result import JobEvent
from trainer.protocol.status import JobStatus, TaskRow

EVENTS_SHOWN = 3
LARGEST = 1e300

_PHASE_STYLES = {"running": "green", "done": "green", "failed": "red"}
_STATE_STYLES = {"done": "green", "lost": "red", "absent": "yellow", "waiting": "yellow"}


class Drawing(JupyterMixin, Group):
    """What is drawn below each other. A notebook can show it too; of all text there only Rich makes HTML."""


def render(
    name: str,
    strategy: str,
    names: Sequence[str],
    status: JobStatus | None,
    elapsed: float,
    restarts: Mapping[str, int] | None = None,
    silent: bool = False,
    port: int | None = None,
    notes: Sequence[str] = (),
) -> Drawing:
    """Draws a job.

    Args:
        names: of all tasks, in the order of the table.
        status: the chief's last; None before the first.
        elapsed: seconds since the job was started.
        restarts: of supervisors; the status has those of their children.
        silent: whether the chief no longer answers.
        port: where the chief answers, if it is to be shown.
        notes: lines above the tasks, such as why a pod waits.
    """
    phase = "no reply from the chief" if status and silent else status.shown_phase if status else "starting"
    rate = status.examples_per_second if status else None
    head = Text.assemble(
        (name, "bold"), f"  {strategy}  ", (phase, _PHASE_STYLES.get(phase, "yellow")),
        f"  generation {_number(status and status.generation, 'd')}",
        "" if rate is None else f"  {_number(rate, ',.0f')} examples/s", no_wrap=True, overflow="ellipsis",
    )  # fmt: skip
    checkpoint = _number(status and status.last_checkpoint, "d")
    where = f"  http://127.0.0.1:{port}/status" if port else ""
    foot = Text(f"checkpoint {checkpoint}  elapsed {_clock(elapsed)}{where}", no_wrap=True, overflow="ellipsis")
    parts: list[Text | Table] = [
        Text(""),
        head,
        _progress(status),
        foot,
    ]
    if status and status.ending and not status.end:
        parts.append(Text(status.ending, no_wrap=True, overflow="ellipsis"))
    parts += [Text(line, "yellow", no_wrap=True, overflow="ellipsis") for line in _notices(status)]
    rows = _table(names, status.tasks if status else {}, restarts or {})
    parts += [Text(note, "yellow", no_wrap=True, overflow="ellipsis") for note in notes]
    return Drawing(*parts, rows, *_events(status.events if status else []))


def _notices(status: JobStatus | None) -> list[str]:
    if status is None:
        return []
    waiting = f"waiting for {status.waiting_for}" if status.waiting_for else None
    slow = status.straggler.text if status.straggler else None
    return [each for each in (waiting, status.stalled, slow) if each]


def _progress(status: JobStatus | None) -> Table:
    made, total, left = (status.step, status.steps, status.seconds_left) if status else (None, None, None)
    step = made or 0
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(width=30)
    grid.add_column(no_wrap=True)
    bar = ProgressBar(total=total or 1, completed=step if total else 0, width=30, complete_style="green")
    share = f"{step / total:.0%}  " if total else ""
    grid.add_row(f"step {_number(made, 'd')}/{_number(total, 'd')}", bar, f"{share}ETA {_clock(left)}")
    return grid


def _table(names: Sequence[str], rows: Mapping[str, TaskRow], restarts: Mapping[str, int]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for title in ("task", "state"):
        table.add_column(title, no_wrap=True)
    for title in ("step", "loss", "accuracy", "examples/s", "restarts"):
        table.add_column(title, justify="right", no_wrap=True)
    for name in [*names, *(name for name in rows if name not in names)]:
        row = rows.get(name)
        state, figures = (row.state, row.figures) if row else ("starting", {})
        restarted = restarts.get(name, 0) + (row.restarts if row else 0)
        table.add_row(
            Text(name), Text(state, _STATE_STYLES.get(state, "")),
            _number(row and row.step, "d"), _number(figures.get("loss"), "#.4g"),
            _number(figures.get("accuracy"), "#.4g"), _number(figures.get("examples_per_second"), ",.0f"),
            str(restarted or ""),
        )  # fmt: skip
    return table


def _events(events: Sequence[JobEvent]) -> list[Text]:
    lines = []
    for event in events[-EVENTS_SHOWN:]:
        known = 0 <= event.time < 1e11  # localtime refuses some numbers
        at = time.strftime("%H:%M:%S", time.localtime(event.time)) if known else "-"
        lines.append(Text.assemble((f"{at}  ", "dim"), event.text, no_wrap=True, overflow="ellipsis"))
    return lines


def _amount(value: object) -> float | None:
    """A finite number, or None: JSON as Python reads it also has NaN and infinity."""
    return value if isinstance(value, (int, float)) and abs(value) < LARGEST else None


def _number(value: object, form: str) -> str:
    amount = _amount(value)
    if amount is None:
        return "-"
    if abs(amount) >= 1e8:
        return f"{amount:.3g}"  # such as the loss of a model that diverges: the table keeps its width
    return format(int(amount) if form == "d" else amount, form).rstrip(".")


def _clock(seconds: float | None) -> str:
    if (known := _amount(seconds)) is None:
        return "-"
    return clock(known)
