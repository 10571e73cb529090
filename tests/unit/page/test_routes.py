"""The routes of a page with real connections on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from aiohttp import ClientResponse, ClientSession

from tests.unit.page.served import Scripted, serving
from trainer.page import routes
from trainer.page.lines import LogQuery

T = TypeVar("T")


def soon(work: Coroutine[None, None, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 30))


async def get(address: str) -> tuple[int, str]:
    async with ClientSession() as session, session.get(address) as response:
        return response.status, await response.text()


@asynccontextmanager
async def reading(source: Scripted) -> AsyncIterator[ClientResponse]:
    """A reader of its events."""
    async with serving(source) as address, ClientSession() as session, session.get(f"{address}/page/events") as events:
        yield events


@pytest.mark.parametrize(
    "name", ["..%2fserver.py", "../server.py", "%2e%2e/server.py", "/etc/passwd", "index.html%00", ".", "", "page.py"]
)
def test_only_files_of_the_page_are_served(name: str) -> None:
    async def run() -> int:
        async with serving() as address:
            return (await get(f"{address}/page/{name}"))[0]

    assert soon(run()) == 404


def test_the_page_and_its_parts_have_types_that_a_browser_executes() -> None:
    async def run() -> list[tuple[int, str]]:
        found = []
        async with serving() as address, ClientSession() as session:
            for path in ("/", "/page/page.js", "/page/page.css"):
                async with session.get(address + path) as response:
                    found.append((response.status, response.content_type))
        return found

    assert soon(run()) == [(200, "text/html"), (200, "text/javascript"), (200, "text/css")]


def test_events_come_as_they_are_sent_and_end_with_the_source() -> None:
    source = Scripted()

    async def run() -> bytes:
        async with reading(source) as response:
            assert response.content_type == "text/event-stream"
            source.queues[0].put_nowait("event: mark\ndata: {}\n\n")
            source.queues[0].put_nowait("")
            return await response.read()

    assert soon(run()) == b": begin\n\nevent: mark\ndata: {}\n\n"
    assert source.ended == 1


def test_events_are_for_readers_only() -> None:
    async def run() -> int:
        async with serving() as address, ClientSession() as session, session.head(f"{address}/page/events") as answer:
            return answer.status

    assert soon(run()) == 404


def test_a_silent_source_keeps_the_connection_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "KEEP_ALIVE_SECONDS", 0.05)

    async def run() -> None:
        async with reading(Scripted()) as response:
            await response.content.readuntil(b": still here\n\n")

    soon(run())


def test_a_reader_that_leaves_or_does_not_read_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "WRITE_SECONDS", 0.2)
    source = Scripted(most=0)

    async def run() -> None:
        async with serving(source) as address:
            host, port = address.removeprefix("http://").split(":")
            _, writer = await asyncio.open_connection(host, int(port), limit=1)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(f"GET /page/events HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
            while not source.queues:
                await asyncio.sleep(0.01)
            while not source.ended:
                source.queues[0].put_nowait(f"data: {'x' * 1_000_000}\n\n")
                await asyncio.sleep(0.01)
            async with ClientSession() as session, session.get(f"{address}/page/events"):
                assert len(source.queues) == 2
            while source.ended < 2:
                await asyncio.sleep(0.01)
            writer.close()

    soon(run())


def test_so_many_pages_are_served_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "MOST_READERS", 2)

    async def run() -> list[int]:
        async with serving() as address, ClientSession() as session:
            opened = [await session.get(f"{address}/page/events") for _ in range(3)]
            found = [each.status for each in opened]
            opened[0].close()
            while (again := await session.get(f"{address}/page/events")).status != 200:
                await asyncio.sleep(0.01)
            for each in (*opened, again):
                each.close()
            return found

    assert soon(run()) == [200, 200, 503]


def test_a_question_for_lines_is_read() -> None:
    source = Scripted()

    async def run() -> None:
        async with serving(source) as address:
            await get(f"{address}/page/logs")
            await get(f"{address}/page/logs?after=7&task=worker%3A1&search=a%26b&limit=20")

    soon(run())
    assert source.queries == [LogQuery(), LogQuery(7, "worker:1", "a&b", 20)]


@pytest.mark.parametrize("query", ["after=-1", "after=x", "after=1e3", "limit=", "limit=999999", "after=" + "9" * 40])
def test_what_is_no_number_of_a_line_is_refused_in_one_line(query: str) -> None:
    async def run() -> tuple[int, str]:
        async with serving() as address:
            return await get(f"{address}/page/logs?{query}")

    status, text = soon(run())
    assert status == 400
    assert text.partition(":")[0] in ("after", "limit")
    assert text.count("\n") == 1
