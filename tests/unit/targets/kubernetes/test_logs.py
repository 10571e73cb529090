"""Following logs through the restart of an API server, whose streams break."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from trainer.targets.kubernetes import logs
from trainer.targets.kubernetes.names import COMPONENT, INSTANCE
from trainer.targets.outage import NoAnswer

LABELS = {COMPONENT: "chief", INSTANCE: "j", "batch.kubernetes.io/job-completion-index": "0"}
TIMES = [
    "2026-01-01T00:00:01.5Z",
    "2026-01-01T00:00:01.50001Z",
    "2026-01-01T00:00:02Z",
    "2026-01-01T00:00:03.000000001Z",
]


class Server:
    """A server whose stream breaks after two lines, that then does not answer, and then sends all lines of that second
    again, as the kubelet does."""

    def __init__(self) -> None:
        self.looks, self.streams, self.asked = 0, 0, list[str]()

    @property
    def state(self) -> dict[str, Any]:
        return {"running": {}} if self.streams < 3 else {"terminated": {"exitCode": 0}}

    def pod(self) -> Any:
        status = {"containerStatuses": [{"name": "task", "state": self.state}]}
        return {"metadata": {"name": "p", "uid": "1", "labels": LABELS, "creationTimestamp": ""}, "status": status}

    async def items(self, kind: str, **_: str) -> list[Any]:
        self.looks += 1
        if self.streams == 1 and self.looks % 3:
            raise NoAnswer("no answer")
        conditions = [{"type": "Complete", "status": "True"}] if self.streams >= 3 else []
        job = {
            "metadata": {"labels": LABELS, "name": "j-chief", "uid": "2"},
            "spec": {},
            "status": {"conditions": conditions},
        }
        return {"Job": [job], "Pod": [self.pod()]}.get(kind, [])

    async def read(self, *_: str) -> Any:
        return self.pod()

    async def log(self, _: str, follow: bool, **more: str) -> AsyncIterator[str]:
        self.streams += 1
        self.asked.append(more.get("sinceTime", ""))
        if self.streams == 2:
            raise NoAnswer("no answer")
        for number in range(2 if self.streams == 1 else 4):
            yield f"{TIMES[number]} line {number}"
        if self.streams == 1:
            raise NoAnswer("the stream broke")


def test_lines_go_on_after_the_last_one_without_gap_or_repetition(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    server = Server()

    @contextlib.asynccontextmanager
    async def connect(_: str | None) -> AsyncIterator[Any]:
        yield server

    async def read() -> list[str]:
        return [line.text async for line in logs.logs("j", None, None, follow=True)]

    monkeypatch.setattr(logs, "connect", connect)
    monkeypatch.setattr(logs, "AGAIN_SECONDS", 0.01)
    assert asyncio.run(asyncio.wait_for(read(), 30)) == [f"line {number}" for number in range(4)]
    assert server.asked == ["", TIMES[1], TIMES[1]]
    assert "trainer: no answer; the job goes on" in capsys.readouterr().err
