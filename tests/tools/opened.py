"""`trainer ui` as a user runs it, and the page behind its address."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from tests.tools.harness import TRAINER
from trainer.job.errors import Exit
from trainer.page.routes import KINDS, STATIC

AWAY = (OSError, http.client.HTTPException)
"""Errors of a page whose chief is away: Docker may answer in place of a container that ends."""
BROWSER = 6
"""Connections that a browser opens at once."""
FILES = {f"page/{path.relative_to(STATIC)}": path for path in STATIC.rglob("*") if path.suffix in KINDS}
"""Of the page, by their paths."""


@dataclass
class Shown:
    """A page at an address."""

    address: str
    """With the slash at its end."""

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(f"{self.address}{path}", timeout=30) as answer:
            return bytes(answer.read())

    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get("page/state"))
        return found

    def until(self, what: str, reached: Callable[[dict[str, Any]], Any], timeout: float = 120) -> dict[str, Any]:
        """The first document for which `reached` holds; the page may be away meanwhile."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            with contextlib.suppress(*AWAY):
                if reached(found := self.state()):
                    return found
            time.sleep(0.2)
        raise AssertionError(f"not within {timeout:g} s: {what}")

    def require_files(self, times: int) -> None:
        """All files of the page come unchanged, several times, on as many connections as a browser has."""
        wanted = [*FILES, *["page/state"] * 10] * times
        with ThreadPoolExecutor(BROWSER) as pool:
            for name, body in zip(wanted, pool.map(self.get, wanted), strict=True):
                assert body == FILES[name].read_bytes() if name in FILES else body.startswith(b"{"), name

    def lines(self) -> list[tuple[str, str]]:
        """The newest lines of all tasks: task and text."""
        return [(row["task"], row["text"]) for row in json.loads(self.get("page/logs?limit=5000"))["lines"]]

    def until_lines(self, reached: Callable[[list[tuple[str, str]]], bool], timeout: float = 20) -> None:
        """Until what a task has written has come with its reports, while somebody looks."""
        deadline = time.monotonic() + timeout
        while not reached(found := self.lines()):
            assert time.monotonic() < deadline, found
            time.sleep(0.5)

    def steps(self, count: int) -> list[int]:
        """The steps in the next events."""
        found: list[int] = []
        with urllib.request.urlopen(f"{self.address}page/events", timeout=60) as events:
            for line in events:
                if line != b"event: points\n":
                    continue
                if step := json.loads(next(events).removeprefix(b"data: "))["job"].get("step"):
                    found.append(step)
                if len(found) == count:
                    return found
        raise AssertionError(f"the events ended after {found}")


@dataclass
class Opened(Shown):
    """That of `trainer ui`, while the command runs."""

    process: subprocess.Popen[str]

    def end(self, number: signal.Signals = signal.SIGINT) -> tuple[int, str, str]:
        """Exit code, stdout after the address, and stderr."""
        self.process.send_signal(number)
        return self.wait()

    def wait(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err

    def until_it_ends(self, timeout: float = 180) -> tuple[int, str, str]:
        """As a browser that is open asks again and again."""
        deadline = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"`trainer ui` did not end within {timeout:g} s"
            with contextlib.suppress(*AWAY, ValueError):
                self.state()
            time.sleep(0.5)
        return self.wait()

    def require_live(self, last_step: Callable[[], int], tasks: set[str], times: int) -> dict[str, Any]:
        """Requires that the page of a job that trains shows the truth; returns its document.

        Args:
            last_step: the newest step of the learning curve, which the chief's child writes.
            times: as in require_files.
        """
        self.until("steps", lambda found: (found["status"].get("step") or 0) > 50)
        before = last_step()
        found = self.until("the steps that were made", lambda found: found["status"]["step"] >= before)
        assert found["live"]
        assert found["history"]["job"]["step"][-1] <= found["status"]["step"] <= last_step() + 5
        assert set(found["status"]["tasks"]) == tasks
        steps = self.steps(3)
        assert before < steps[0] < steps[-1]
        self.require_files(times)
        self.until_lines(lambda lines: {task for task, _ in lines} == tasks)
        return found

    def until_next_chief(self, before: dict[str, Any]) -> dict[str, Any]:
        """The document once another chief makes steps; it continues the history of an earlier document."""
        again = self.until(
            "the next chief makes steps",
            lambda found: found["status"]["generation"] > 1 and found["status"]["figures"].get("loss"),
        )
        begin = before["history"]["job"]["time"][0]
        assert again["history"]["job"]["time"][0] == begin, "the history begins where it began"
        return again


def require_that_a_second_one_ends(*words: str) -> None:
    """Another `trainer ui WORDS` ends with Ctrl-C, without an error."""
    with opened(*words) as other:
        code, out, err = other.end()
    assert (code, out) == (Exit.OK, ""), err
    assert "Traceback" not in err


@contextlib.contextmanager
def opened(*words: str) -> Iterator[Opened]:
    """`trainer ui WORDS`, once it has printed its address."""
    environ = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    with subprocess.Popen(
        [*TRAINER, "ui", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ
    ) as process:
        try:
            assert process.stdout is not None
            address = re.fullmatch(r"page: (http://localhost:\d+/)\n", process.stdout.readline())
            assert address, process.communicate()
            yield Opened(address[1], process)
        finally:
            process.kill()
