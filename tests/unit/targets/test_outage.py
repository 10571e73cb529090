from __future__ import annotations

import pytest

from trainer.job.errors import Exit
from trainer.targets import outage
from trainer.targets.outage import LONGEST_SECONDS, REFUSED_SECONDS, NoAnswer, Outage, Refused


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(outage, "time", made)
    return made


def test_it_is_told_of_once_at_its_beginning_and_its_end(clock: Clock) -> None:
    said: list[str] = []
    lost = Outage(said.append)
    for now in (100.0, 130.0, 160.0):
        clock.now = now
        lost.lasts(NoAnswer("no answer"))
    lost.over()
    lost.over()
    assert said == [
        "no answer; the job goes on, and is asked for again for 10 minutes", "there is an answer again, after 60 s",
    ]  # fmt: skip


def test_it_is_waited_for_no_longer_than_ten_minutes_each_time(clock: Clock) -> None:
    lost = Outage(lambda _: None)
    for _ in range(2):
        lost.lasts(NoAnswer("no answer"))
        clock.now += LONGEST_SECONDS
        lost.lasts(NoAnswer("no answer"))
        lost.over()
    lost.lasts(NoAnswer("no answer"))
    clock.now += LONGEST_SECONDS + 1
    with pytest.raises(NoAnswer, match=r"^no answer; no answer for 10 minutes; the job may have gone on$") as caught:
        lost.lasts(NoAnswer("no answer"))
    assert caught.value.code is Exit.TARGET


def test_a_server_that_starts_may_refuse_for_a_moment(clock: Clock) -> None:
    said: list[str] = []
    lost = Outage(said.append)
    lost.lasts(Refused("forbidden"))
    clock.now += REFUSED_SECONDS
    lost.lasts(Refused("forbidden"))
    lost.lasts(NoAnswer("no answer"))
    clock.now += REFUSED_SECONDS
    lost.lasts(Refused("forbidden"))
    clock.now += REFUSED_SECONDS + 1
    with pytest.raises(Refused, match=r"^forbidden$"):
        lost.lasts(Refused("forbidden"))
    assert len(said) == 1
