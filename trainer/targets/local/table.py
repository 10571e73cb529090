"""The live table of a local job, drawn from the chief's /status. It imports Rich: only where there is a terminal."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainer.job.spec import JobSpec

EVENTS_SHOWN = 3
LARGEST = 1e300

_PHASE_STYLES = {"running": "green", "done": "green", "failed": "red"}
_STATE_STYLES = {"done": "green", "lost": "red", "absent": "yellow", "waiting": "yellow"}


def seconds_left(steps: Sequence[tuple[float, int]], total: object) -> float | None:
    """From (time, step) pairs to the time until step `total`; None while it is unknown."""
    if not isinstance(total, int) or len(steps) < 2:
        return None
    (then, first), (now, last) = steps[0], steps[-1]
    return (total - last) * (now - then) / (last - first) if last > first else None


def render(
    spec: JobSpec,
    names: Sequence[str],
    status: Mapping[str, Any],
    elapsed: float,
    left: float | None = None,
    restarts: Mapping[str, int] | None = None,
) -> Group:
    """Draws a job, from whatever the chief's /status holds.

    Args:
        names: of all tasks, in the order of the table.
        elapsed: seconds since the job was started.
        left: seconds to the end, if known.
        restarts: of supervisors; the status has those of their children.
    """
    phase = str(status.get("phase") or "starting")
    head = Text.assemble(
        (spec.name, "bold"), f"  {spec.strategy}  ", (phase, _PHASE_STYLES.get(phase, "yellow")),
        f"  generation {_number(status.get('generation'), 'd')}", no_wrap=True, overflow="ellipsis",
    )  # fmt: skip
    checkpoint = _number(status.get("last_checkpoint"), "d")
    foot = Text(f"checkpoint {checkpoint}  elapsed {_clock(elapsed)}", no_wrap=True, overflow="ellipsis")
    parts: list[Text | Table] = [Text(""), head, _progress(status, left), foot]
    if status.get("waiting_for"):
        parts.append(Text(f"waiting for {status['waiting_for']}", "yellow", no_wrap=True, overflow="ellipsis"))
    return Group(*parts, _table(names, status, restarts or {}), *_events(status))


def _progress(status: Mapping[str, Any], left: float | None) -> Table:
    step, total = _amount(status.get("step")) or 0, _amount(status.get("steps"))
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(width=30)
    grid.add_column(no_wrap=True)
    bar = ProgressBar(total=total or 1, completed=step if total else 0, width=30, complete_style="green")
    share = f"{step / total:.0%}  " if total else ""
    grid.add_row(f"step {_number(status.get('step'), 'd')}/{_number(total, 'd')}", bar, f"{share}ETA {_clock(left)}")
    return grid


def _table(names: Sequence[str], status: Mapping[str, Any], restarts: Mapping[str, int]) -> Table:
    rows = status.get("tasks")
    rows = rows if isinstance(rows, dict) else {}
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for title in ("task", "state"):
        table.add_column(title, no_wrap=True)
    for title in ("step", "loss", "accuracy", "examples/s", "restarts"):
        table.add_column(title, justify="right", no_wrap=True)
    for name in [*names, *(name for name in rows if name not in names)]:
        row = rows.get(name)
        row = row if isinstance(row, dict) else {}
        state = str(row.get("state") or "starting")
        again = restarts.get(name, 0) + int(_amount(row.get("restarts")) or 0)
        table.add_row(
            name, Text(state, _STATE_STYLES.get(state, "")),
            _number(row.get("step"), "d"), _number(row.get("loss"), "#.4g"), _number(row.get("accuracy"), "#.4g"),
            _number(row.get("examples_per_second"), ",.0f"), str(again or ""),
        )  # fmt: skip
    return table


def _events(status: Mapping[str, Any]) -> list[Text]:
    events = status.get("events")
    events = [event for event in events if isinstance(event, dict)] if isinstance(events, list) else []
    lines = []
    for event in events[-EVENTS_SHOWN:]:
        when = _amount(event.get("time"))
        known = when is not None and 0 <= when < 1e11  # localtime refuses some numbers
        clock = time.strftime("%H:%M:%S", time.localtime(when)) if known else "-"
        lines.append(
            Text.assemble((f"{clock}  ", "dim"), str(event.get("text", "")), no_wrap=True, overflow="ellipsis")
        )
    return lines


def _amount(value: object) -> float | None:
    """A number that can be drawn: JSON as Python reads it also has NaN and infinity."""
    return value if isinstance(value, (int, float)) and abs(value) < LARGEST else None


def _number(value: object, form: str) -> str:
    amount = _amount(value)
    if amount is None:
        return "-"
    if abs(amount) >= 1e8:
        return f"{amount:.3g}"  # such as the loss of a model that diverges: the table keeps its width
    return format(int(amount) if form == "d" else amount, form).rstrip(".")


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
