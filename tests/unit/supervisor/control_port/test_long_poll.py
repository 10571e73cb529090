"""Reports that are held, on a real event loop."""

from __future__ import annotations

import asyncio

import pytest

from trainer.supervisor.control_port.long_poll import Held


def test_all_are_answered_at_the_news_and_none_is_kept() -> None:
    """Also the one whose sender has gone meanwhile."""

    def timers() -> int:
        return sum(not timer.cancelled() for timer in vars(asyncio.get_running_loop())["_scheduled"])

    async def run() -> None:
        before, held = timers(), Held()
        reports = [asyncio.create_task(held.until_news(60.0)) for _ in range(3)]
        while len(held) < 3:
            await asyncio.sleep(0)
        reports[1].cancel()
        await asyncio.wait({reports[1]})
        assert len(held) == 2
        held.release()
        await asyncio.gather(reports[0], reports[2])
        assert len(held) == 0
        assert timers() == before

    asyncio.run(asyncio.wait_for(run(), 30))


def test_without_news_each_is_answered_after_its_own_time() -> None:
    async def run() -> None:
        held = Held()
        short, long = (asyncio.create_task(held.until_news(seconds)) for seconds in (0.01, 60.0))
        await short
        assert not long.done()
        assert len(held) == 1
        held.release()
        await long

    asyncio.run(asyncio.wait_for(run(), 30))


def test_news_and_the_end_of_the_time_may_come_together() -> None:
    async def run() -> None:
        held = Held()
        report = asyncio.create_task(held.until_news(0.0))
        await asyncio.sleep(0)
        held.release()
        held.release()
        await report

    asyncio.run(asyncio.wait_for(run(), 30))


@pytest.mark.parametrize("seconds", [1.0, 5.0])
def test_reports_of_different_moments_are_answered_together(seconds: float) -> None:
    async def run() -> None:
        loop, held = asyncio.get_running_loop(), Held()
        reports = []
        for _ in range(200):
            reports.append(asyncio.create_task(held.until_news(seconds)))
            await asyncio.sleep(0)
        now = loop.time()
        due = [timer.when() - now for timer in vars(loop)["_scheduled"]]
        assert len(due) == 200
        assert len(set(due)) <= 2
        assert all(0.85 * seconds < each <= seconds for each in due)
        held.release()
        await asyncio.gather(*reports)

    asyncio.run(run())
