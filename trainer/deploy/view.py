"""What a user sees of a local job: prefixed lines, or on a terminal a live table below them, and a summary.

Rich and aiohttp are imported only for the live table, and after the tasks were started.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import shlex
import shutil
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trainer.deploy.text import aligned
from trainer.job.spec import JobSpec

if TYPE_CHECKING:
    from rich.console import Console, Group
    from rich.table import Table
    from rich.text import Text

REFRESH_SECONDS = 0.5
STATUS_SECONDS = 1.0
"""For the chief's answer to /status."""
RATE_SECONDS = 30.0
"""How far back the steps are looked at to tell the time left."""
EVENTS_SHOWN = 3

_PHASE_STYLES = {"running": "green", "done": "green", "failed": "red"}
_STATE_STYLES = {"done": "green", "lost": "red", "absent": "yellow", "waiting": "yellow"}


class Show(Protocol):
    """Shows one line of a task, or of `local`, which is what runs them."""

    def __call__(self, source: str, text: str, error: bool = False) -> None: ...


def show_nothing(source: str, text: str, error: bool = False) -> None:
    """For before there is a view."""


@contextlib.asynccontextmanager
async def open_view(
    spec: JobSpec,
    names: Sequence[str],
    status_port: int,
    restarts: Mapping[str, int],
    on_gone: Callable[[], None],
    plain: bool,
) -> AsyncIterator[Show]:
    """What lines go to while a job runs.

    Args:
        names: of all tasks, in the order of the table.
        status_port: of the chief's supervisor, on this machine.
        restarts: of supervisors, by task; kept up to date by the caller.
        on_gone: called when nobody reads our output any more.
        plain: prefixed lines, also on a terminal.
    """
    if plain or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield plain_lines(on_gone)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console()
    begun = time.monotonic()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        look = asyncio.create_task(_watch(spec, names, status_port, restarts, begun, live))
        try:
            yield _lines_above(console, on_gone)
        finally:
            look.cancel()
            await asyncio.wait({look})


def plain_lines(on_gone: Callable[[], None]) -> Show:
    """`worker:1 | text`, flushed at once; errors go to stderr."""

    def show(source: str, text: str, error: bool = False) -> None:
        stream = sys.stderr if error else sys.stdout
        try:
            print(f"{source} | {text}", file=stream, flush=True)
        except BrokenPipeError:
            # The interpreter flushes once more at its end, and must not complain then.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            on_gone()

    return show


def summary(spec: JobSpec, check: str | None = None) -> str:
    """The end of a job that succeeded: main figures and where they are; with a `check` to suggest, what to run next."""
    path = Path(spec.directory) / "result.json"
    result: object = None
    with contextlib.suppress(OSError, ValueError):
        result = json.loads(path.read_text())
    result = result if isinstance(result, dict) else {}
    rows = [*figures(result), ("result", str(path))]
    if check is not None:
        tensorboard = shlex.join([program("tensorboard"), "--logdir", f"{spec.directory}/tensorboard"])
        rows += zip(("next", ""), [check] if spec.strategy == "graph" else [tensorboard, check], strict=False)
    return "\n".join(["", *aligned(rows)])


def figures(result: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The main figures of a result, with their names; nothing for one that it does not have."""
    names = ("status", "steps", "test_accuracy", "examples_per_second", "seconds_to_first_step", "generations")
    computed = result.get("result")  # of a graph job
    own = computed if isinstance(computed, dict) else {}
    shown = {name: result[name] for name in names if result.get(name) is not None}
    shown |= {name: value for name, value in own.items() if isinstance(value, (bool, int, float, str))}
    return [(name, figure(value)) for name, value in shown.items()]


def program(name: str) -> str:
    """How to type a program that was installed beside this one."""
    beside = Path(sys.executable).parent / name
    if shutil.which(name) or not beside.exists():
        return name
    return str(beside.relative_to(Path.cwd()) if beside.is_relative_to(Path.cwd()) else beside)


def figure(value: object) -> str:
    """A value for people: four digits of a fraction, thousands with commas."""
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 1 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


# On a terminal. ---------------------------------------------------------------------------------------


def _lines_above(console: Console, on_gone: Callable[[], None]) -> Show:
    from rich.text import Text

    last_error = ""

    def show(source: str, text: str, error: bool = False) -> None:
        nonlocal last_error
        if error and text == last_error:
            return  # every task tells why the job ended; a container's log needs that, a terminal does not
        last_error = text if error else last_error
        line = Text.from_ansi(text, style="red" if error else "yellow" if source == "local" else "")
        try:
            console.print(Text.assemble((f"{source} | ", "dim"), line), highlight=False)
        except OSError:  # the terminal was closed
            on_gone()

    return show


async def _watch(
    spec: JobSpec, names: Sequence[str], port: int, restarts: Mapping[str, int], begun: float, live: Any
) -> None:
    """Asks the chief now and then, and draws what it says."""
    live.update(render(spec, names, {}, 0.0), refresh=True)
    import aiohttp

    status: dict[str, Any] = {}
    steps: deque[tuple[float, int]] = deque()
    generation = None
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(STATUS_SECONDS)) as session:
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/status") as response:
                    answer = await response.json()
            except (aiohttp.ClientError, asyncio.TimeoutError, ValueError, OSError):
                answer = None
            now = time.monotonic()
            if isinstance(answer, dict):
                status = answer
            elif status:
                status = {**status, "phase": "no word from the chief"}
            if status.get("generation") != generation:
                generation = status.get("generation")
                steps.clear()
            if isinstance(step := status.get("step"), int):
                steps.append((now, step))
            while steps and now - steps[0][0] > RATE_SECONDS:
                steps.popleft()
            left = seconds_left(steps, status.get("steps"))
            live.update(render(spec, names, status, now - begun, left, restarts), refresh=True)
            await asyncio.sleep(REFRESH_SECONDS)


def seconds_left(steps: Sequence[tuple[float, int]], total: object) -> float | None:
    """From (time, step) pairs to the time until step `total`; None while nobody can tell."""
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
    from rich.console import Group
    from rich.text import Text

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
    from rich.progress_bar import ProgressBar
    from rich.table import Table

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
    from rich import box
    from rich.table import Table
    from rich.text import Text

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
            _number(row.get("step"), "d"), _number(row.get("loss"), ".4f"), _number(row.get("accuracy"), ".3f"),
            _number(row.get("examples_per_second"), ",.0f"), str(again or ""),
        )  # fmt: skip
    return table


def _events(status: Mapping[str, Any]) -> list[Text]:
    from rich.text import Text

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
    return value if isinstance(value, (int, float)) and math.isfinite(value) else None


def _number(value: object, form: str) -> str:
    amount = _amount(value)
    if amount is None:
        return "-"
    if abs(amount) >= 1e8:
        return f"{amount:.3g}"  # such as the loss of a model that diverges: the table keeps its width
    return format(int(amount) if form == "d" else amount, form)


def _clock(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    minutes, seconds = divmod(int(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02}:{seconds:02}"
