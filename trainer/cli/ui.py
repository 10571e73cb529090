"""`trainer ui`: opens the page of a job: of its chief, here or through a tunnel, or of its files."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainer.api import run as runs
from trainer.api.run import Run
from trainer.cli.shared import require_options
from trainer.connections import Connections, most_connections
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.names import DNS_LABEL
from trainer.page import files
from trainer.page.listen import application, listen
from trainer.page.routes import routes
from trainer.targets import page as pages
from trainer.targets.base import LOCAL
from trainer.targets.outage import NoAnswer, Outage
from trainer.targets.tunnel import Listener, Tunnel, answers, cannot_listen

NOT_FOUND = 404
JOB_POLL_SECONDS = 5.0
"""Time between two questions whether the job is over, while no stream can be made."""
TARGET_LOST_SECONDS = 30.0
"""How long its target may refuse, or not have the job any more, before the command ends."""


def ui(args: argparse.Namespace) -> int:
    require_options(args)
    folder = Path(args.spec).is_dir() and not DNS_LABEL.fullmatch(args.spec)
    if args.target is None and args.namespace is None and (folder or files.exists(args.spec)):
        args.target = LOCAL  # it may be a copy of a model_dir
    run = runs.located(args.spec, args.target, namespace=args.namespace, set=args.set)
    page = run.on.page(run.job, _say)
    show = _shown(args.no_browser)
    if page.address:
        show(page.address)
        return int(Exit.OK)
    serving = _through(run, page.tunnel, args.port, show) if page.tunnel else _files(page.folder, args.port, show)
    return int(asyncio.run(serving))


def _shown(no_browser: bool) -> Callable[[str], None]:
    """Prints an address, and opens it where there is a screen: another browser would take the terminal."""

    def show(address: str) -> None:
        print(f"page: {address}", flush=True)
        screen = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
        if screen and not no_browser:
            webbrowser.open(address)

    return show


def _say(text: str) -> None:
    print(f"trainer: {text}", file=sys.stderr, flush=True)


async def _files(folder: str | None, port: int, show: Callable[[str], None]) -> Exit:
    """Serves the files of a job until Ctrl-C."""
    assert folder is not None
    app = application(Connections(most_connections(), "page", _say, own_user=True))
    app.add_routes(routes(files.FilesPage(folder)))
    try:
        opened = await listen(app, "127.0.0.1", port)
    except (OSError, OverflowError) as error:
        raise cannot_listen(port, error) from None
    try:
        with _stop() as stopped:
            show(f"http://localhost:{opened.number}/")
            await stopped.wait()
    finally:
        await opened.close()
    return Exit.OK


async def _through(run: Run, tunnel: Tunnel, port: int, show: Callable[[str], None]) -> Exit:
    """Passes on what comes to a port of this machine, until Ctrl-C or the end of the job."""
    async with tunnel() as dial:
        try:
            if await answers(dial) == NOT_FOUND:
                raise UserError(f"{run.name}: {pages.NONE}")
        except ConnectionError as error:
            raise TrainerError(f"{run.name}: its page cannot be reached: {error}", Exit.TARGET) from None
        broken = asyncio.Event()
        listener = Listener(dial, lambda _: broken.set())
        opened = await listener.open(port)
        with _stop() as stopped:
            show(f"http://localhost:{opened}/")
            ends = {asyncio.create_task(stopped.wait()), asyncio.create_task(_until_over(run, broken))}
            done, pending = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for each in pending:
                each.cancel()
        await listener.close()
        for each in done:
            each.result()
    return Exit.OK


async def _until_over(run: Run, broken: asyncio.Event) -> None:
    """Waits until the job is over. While its chief is started again, streams fail too.

    Raises:
        TrainerError: as Run.status.
    """
    lost_since: float | None = None
    outage = Outage(_say)
    while True:
        await broken.wait()
        broken.clear()
        try:
            found = await asyncio.to_thread(run.on.status, run.job)
        except NoAnswer as error:
            outage.lasts(error)
        except TrainerError:
            lost_since = lost_since or time.monotonic()
            if time.monotonic() - lost_since > TARGET_LOST_SECONDS:
                raise
        else:
            lost_since = None
            outage.over()
            if found.over:
                _say(f"{run.name} is over: {found.phase}")
                break
        await asyncio.sleep(JOB_POLL_SECONDS)


@contextmanager
def _stop() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C and SIGTERM set, with which a user ends the command."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopped.set)
    try:
        yield stopped
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
