"""Reports that the chief holds until there is news."""

from __future__ import annotations

import asyncio


class Held:
    """With a future and a timer of each: asyncio.wait_for makes a task too, of thousands of reports each second."""

    def __init__(self) -> None:
        self._reports = set[asyncio.Future[None]]()

    def __len__(self) -> int:
        return len(self._reports)

    async def until_news(self, seconds: float) -> None:
        """Holds a report until `release` is called, at most for so many seconds."""
        loop = asyncio.get_running_loop()
        report: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(seconds, _end, report)
        self._reports.add(report)
        try:
            await report
        finally:
            timer.cancel()
            self._reports.discard(report)

    def release(self) -> None:
        """There is news: all reports are answered."""
        for report in self._reports:
            _end(report)


def _end(report: asyncio.Future[None]) -> None:
    if not report.done():
        report.set_result(None)
