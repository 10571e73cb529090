"""The output of a local job: prefixed lines and, on a terminal, a live table (../table.py) below them.

Rich and aiohttp are imported only for the live table, and after the tasks were started.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from trainer.job.spec import JobSpec

if TYPE_CHECKING:
    from rich.console import Console
    from rich.live import Live

REFRESH_SECONDS = 0.5
STATUS_SECONDS = 1.0
"""How long the chief may take to answer /status."""


class Show(Protocol):
    """Shows one line of a task, or of `local`, the launcher."""

    def __call__(self, source: str, text: str, error: bool = False) -> None: ...


def show_nothing(source: str, text: str, error: bool = False) -> None:
    """Discards lines, before the view is open."""


@contextlib.asynccontextmanager
async def open_view(
    spec: JobSpec,
    names: Sequence[str],
    status_port: int,
    restarts: Mapping[str, int],
    on_closed: Callable[[], None],
    plain: bool,
) -> AsyncIterator[Show]:
    """Opens the view that shows lines while a job runs.

    Args:
        names: of all tasks, in the order of the table.
        status_port: of the chief's supervisor, on this machine.
        restarts: of supervisors, by task; kept up to date by the caller.
        on_closed: called when the reader of our output has exited.
        plain: print prefixed lines, also on a terminal.
    """
    if plain or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield plain_lines(on_closed)
        return
    from rich.console import Console
    from rich.live import Live

    console = Console()
    begun = time.monotonic()
    with Live(console=console, auto_refresh=False, transient=True) as live:
        watching = asyncio.create_task(_watch(spec, names, status_port, restarts, begun, live))
        try:
            yield _lines_above(console, on_closed)
        finally:
            watching.cancel()
            await asyncio.wait({watching})


def plain_lines(on_closed: Callable[[], None]) -> Show:
    """`worker:1 | text`, flushed at once; errors go to stderr."""

    def show(source: str, text: str, error: bool = False) -> None:
        stream = sys.stderr if error else sys.stdout
        try:
            print(f"{source} | {text}", file=stream, flush=True)
        except BrokenPipeError:
            # The interpreter flushes once more at its end, and must not complain then.
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            on_closed()

    return show


def _lines_above(console: Console, on_closed: Callable[[], None]) -> Show:
    from rich.text import Text

    def show(source: str, text: str, error: bool = False) -> None:
        line = Text.from_ansi(text, style="red" if error else "yellow" if source == "local" else "")
        try:
            console.print(Text.assemble((f"{source} | ", "dim"), line), highlight=False)
        except OSError:  # the terminal was closed
            on_closed()

    return show


async def _watch(
    spec: JobSpec, names: Sequence[str], port: int, restarts: Mapping[str, int], begun: float, live: Live
) -> None:
    """Polls the chief and draws its status."""
    from trainer.targets.show import table

    live.update(table.render(spec.name, spec.strategy, names, None, 0.0, port=port), refresh=True)
    import aiohttp

    from trainer.protocol.status import read

    status, silent = None, False
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(STATUS_SECONDS)) as session:
        while True:
            try:
                async with session.get(f"http://127.0.0.1:{port}/status") as response:
                    status, silent = read(await response.read()), False
            except (aiohttp.ClientError, asyncio.TimeoutError, ValueError, OSError):
                silent = True
            elapsed = time.monotonic() - begun
            drawn = table.render(spec.name, spec.strategy, names, status, elapsed, restarts, silent, port)
            live.update(drawn, refresh=True)
            await asyncio.sleep(REFRESH_SECONDS)
