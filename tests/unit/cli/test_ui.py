"""`trainer ui` as a user runs it: of a folder, and through a tunnel of a target that only the registry knows."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from tests.tools.opened import opened
from tests.unit.cli import fake
from tests.unit.page.served import Scripted
from trainer.cli import main as cli
from trainer.cli import ui
from trainer.job.errors import Exit, TrainerError
from trainer.model_dir import layout
from trainer.page.routes import routes
from trainer.targets import base
from trainer.targets.tunnel import Dial, Stream


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_files_of_a_job_are_shown_until_ctrl_c(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"step": 5, "loss": 0.5, "time": 1.7e9}\n')
    with opened(str(tmp_path), "--no-browser") as page:
        document = page.state()
        assert (document["live"], document["history"]["job"]["loss"]) == (False, [0.5])
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(page.address, headers={"Host": "evil.example"}))
        assert page.end(number) == (0, "", "")


def test_a_port_that_is_taken_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], taken: int) -> None:
    (layout.make_own(tmp_path) / "result.json").write_text("{}")
    assert cli.main(["ui", str(tmp_path), "--port", str(taken)]) == Exit.USER
    assert capsys.readouterr().err.startswith(f"trainer: --port {taken}: cannot be used: Address already in use; ")


@pytest.mark.parametrize("words", [["nowhere/job.yaml"], ["."], ["job.yaml", "--target", "local"]])
def test_where_there_is_no_job_one_line_says_so(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.yaml").write_text("{name: j, strategy: one_device}")
    assert cli.main(["ui", *words]) == Exit.USER
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), err[:9]) == ("", 1, "trainer: ")


class Reached:
    """A page in a thread's event loop, and a tunnel that dials it."""

    def __init__(self, *, page: bool = True) -> None:
        self.page, self.broken = page, ""

    @contextlib.asynccontextmanager
    async def __call__(self) -> AsyncIterator[Dial]:
        app = web.Application()
        if self.page:
            app.add_routes(routes(Scripted()))
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]

        async def dial() -> Stream:
            if self.broken:
                raise ConnectionError(self.broken)
            return Socket(*await asyncio.open_connection("127.0.0.1", port))

        try:
            yield dial
        finally:
            await runner.cleanup()


class Socket:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        return await self._reader.read(1 << 16)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        self._writer.close()


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(base.TARGETS, "fake", base.Entry("tests.unit.cli.fake:Fake", options=frozenset(base.OPTIONS)))
    monkeypatch.setattr(fake, "PHASES", ["running"])
    monkeypatch.setattr(ui, "JOB_POLL_SECONDS", 0.05)


@pytest.mark.usefixtures("target")
def test_the_page_of_a_job_elsewhere_comes_through_the_tunnel_and_ends_with_the_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reached, found = Reached(), list[tuple[int, object]]()
    monkeypatch.setattr(fake, "TUNNELS", [reached])
    addresses, codes = list[str](), set[int]()
    monkeypatch.setattr(ui, "_shown", lambda _: addresses.append)

    def look() -> None:
        while not addresses:
            time.sleep(0.01)
        with urllib.request.urlopen(f"{addresses[0]}page/state") as answer:
            found.append((answer.status, json.load(answer)))
        reached.broken = "the chief does not run"
        refused = False
        while not refused:  # as a browser tries again
            try:
                urllib.request.urlopen(f"{addresses[0]}page/state", timeout=10)
            except urllib.error.HTTPError as error:
                codes.add(error.code)
                error.close()
            except OSError:
                refused = True
            time.sleep(0.05)

    looking = threading.Thread(target=look)
    looking.start()
    assert cli.main(["ui", "j", "--target", "fake"]) == Exit.OK
    looking.join()
    assert (found, codes) == ([(200, {"version": 1})], {502})
    assert capsys.readouterr().err.splitlines() == [
        "trainer: waiting for the chief: chief:0 is pending",
        "trainer: j is over: done",
    ]


@pytest.mark.usefixtures("target")
def test_a_target_that_does_not_answer_any_more_ends_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reached = Reached()
    monkeypatch.setattr(fake, "TUNNELS", [reached])
    monkeypatch.setattr(ui, "TARGET_LOST_SECONDS", 0.2)
    addresses = list[str]()
    monkeypatch.setattr(ui, "_shown", lambda _: addresses.append)

    def gone(*_: object) -> None:
        raise TrainerError("no Kubernetes answers", Exit.TARGET)

    def look() -> None:
        while not addresses:
            time.sleep(0.01)
        monkeypatch.setattr(fake.Fake, "status", gone)
        reached.broken = "no Kubernetes answers"
        with contextlib.suppress(OSError):
            while True:  # as a browser tries again
                time.sleep(0.05)
                try:
                    urllib.request.urlopen(f"{addresses[0]}page/state", timeout=10)
                except urllib.error.HTTPError as error:
                    error.close()

    looking = threading.Thread(target=look, daemon=True)
    looking.start()
    assert cli.main(["ui", "j", "--target", "fake"]) == Exit.TARGET
    assert capsys.readouterr().err.splitlines()[-1] == "trainer: no Kubernetes answers"


@pytest.mark.usefixtures("target")
def test_a_job_without_a_page_is_an_error(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(fake, "TUNNELS", [Reached(page=False)])
    assert cli.main(["ui", "j", "--target", "fake"]) == Exit.USER
    assert "j: the job has no page (page: none in its spec" in capsys.readouterr().err


@pytest.mark.usefixtures("target")
def test_a_page_that_cannot_be_reached_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reached = Reached()
    reached.broken = "Kubernetes refuses a port-forward (403)"
    monkeypatch.setattr(fake, "TUNNELS", [reached])
    assert cli.main(["ui", "j", "--target", "fake"]) == Exit.TARGET
    assert "j: its page cannot be reached: Kubernetes refuses a port-forward (403)\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("environ", "words", "opens"),
    [({"DISPLAY": ":0"}, False, True), ({"DISPLAY": ":0"}, True, False), ({}, False, False)],
)
def test_a_browser_is_opened_where_there_is_a_screen(
    environ: dict[str, str],
    words: bool,
    opens: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", "linux")
    addresses = list[str]()
    monkeypatch.setattr("webbrowser.open", addresses.append)
    ui._shown(words)("http://localhost:1/")
    assert addresses == (["http://localhost:1/"] if opens else [])
    assert capsys.readouterr().out == "page: http://localhost:1/\n"
