"""The chief's page without a cluster: its document, readers, and the file that outlasts it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar

import pytest

from trainer.job.errors import Exit
from trainer.model_dir import history, layout
from trainer.model_dir.history import History, Mark
from trainer.page import document, files
from trainer.page.lines import LogQuery
from trainer.protocol.facts import Back, Cause, Checkpoint, Loss, Lost
from trainer.supervisor.chief import reporter
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.views import live_page
from trainer.supervisor.views.live_page import MOST_WAITING, LivePage

T = TypeVar("T")


def soon(work: Coroutine[None, None, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 20))


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reporter, "OBSERVE_SECONDS", 0.0)
    monkeypatch.setattr(live_page, "FIRST_LINES_SECONDS", 0.0)


@pytest.fixture
def live(chief: Chief) -> LivePage:
    return page_of(chief)


def page_of(chief: Chief) -> LivePage:
    """The page of a chief that leads its job."""
    chief._record.accepted = True
    page = chief.live_page()
    chief._reporter.observers.append(page)
    return page


@contextlib.asynccontextmanager
async def shown(chief: Chief, page: LivePage, *, continues: bool = False) -> AsyncIterator[asyncio.Task[None]]:
    """The page follows the beats of the chief."""

    async def beat() -> None:
        while True:
            chief._announce()
            chief._reporter.observe(chief._clock())
            await asyncio.sleep(0.01)

    record = chief._record
    beating = asyncio.create_task(beat())
    showing = asyncio.create_task(page.run(record.state.started, record.lease.number, continues=continues))
    try:
        yield showing
    finally:
        for each in (beating, showing):
            each.cancel()
        await asyncio.wait({beating, showing})


async def until(reached: Callable[[], Any]) -> None:
    while not reached():
        await asyncio.sleep(0.01)


def kept(chief: Chief) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files.text(chief._agent.spec.directory))
    return found


def test_the_document_has_the_status_and_the_spec(live: LivePage, chief: Chief) -> None:
    async def run() -> Any:
        async with shown(chief, live):
            await until(lambda: live._history.job.time)
            return json.loads(await live.state())

    found = soon(run())
    assert found["live"]
    status = chief.status().document()
    assert found["status"].keys() == status.keys()
    assert found["status"]["tasks"] == status["tasks"]
    assert found["job"]["spec"]["name"] == "j"
    assert [*found["job"]["tf_config"]] == ["worker:0", "worker:1", "worker:2"]
    assert found["job"]["started"] == chief._record.state.started


def test_pages_that_ask_at_once_share_a_document_that_is_newer_than_their_questions(
    live: LivePage, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [f"text {number}" for number in range(4)]
    made: list[str] = []

    def text(*_: object) -> str:
        made.append(texts[len(made)])
        time.sleep(0.1)  # so that the others ask meanwhile
        return made[-1]

    monkeypatch.setattr(document, "text", text)

    async def run() -> list[str]:
        asking = [asyncio.create_task(live.state()) for _ in range(20)]
        await until(lambda: made)
        asking += [asyncio.create_task(live.state()) for _ in range(20)]
        return [*await asyncio.gather(*asking), await live.state()]

    found = soon(run())
    assert found[0] == texts[0]
    assert set(found[20:40]) == {texts[1]}
    assert (found[40], made) == (texts[2], texts[:3])


def test_it_is_sampled_kept_and_sent_until_the_job_is_over(live: LivePage, chief: Chief) -> None:
    async def run() -> list[str]:
        queue = live.subscribe()
        async with shown(chief, live) as showing:
            await until(lambda: queue.qsize() > 1)
            chief._rendezvous.end(Exit.STOPPED, "stopped by a signal")
            await showing
        await live.close()
        return [queue.get_nowait() for _ in range(queue.qsize())]

    *events, last = soon(run())
    assert last == ""
    assert events[0].startswith('event: points\ndata: {"time": ')
    assert '"text": "stopped by a signal"' in next(each for each in events if each.startswith("event: mark"))
    found = kept(chief)
    assert found["history"]["job"]["time"]
    assert found["history"]["marks"][-1]["kind"] == "stopped"


LOST = Lost("worker:1", Loss(Cause.KILLED, signal="SIGKILL"), "others_continue")


def texts(document: dict[str, Any]) -> list[str]:
    return [mark["text"] for mark in document["history"]["marks"]]


def test_the_next_chief_goes_on_with_what_the_one_before_has_kept(live: LivePage, chief: Chief) -> None:
    before = History()
    before.job.add(time.time() - 60, {("loss",): 0.5})
    history.save(chief._agent.spec.directory, document.pieces(live._view(chief.status()), before))

    async def run() -> dict[str, Any]:
        async with shown(chief, live, continues=True):
            await until(lambda: len(live._history.job.time) > 2)
            found: dict[str, Any] = json.loads(await live.state())
            return found

    assert soon(run())["history"]["job"]["loss"][0] == 0.5


def test_the_marks_are_those_of_the_journal_after_the_chief_was_restarted_and_after_the_end(chief: Chief) -> None:
    chief._record.accepted = True
    chief._rendezvous.note(LOST)
    chief._announce()
    chief._record.save(1)
    chief._record.lock.close()  # it is killed, before its page has saved anything
    following = Chief(chief._agent)
    assert following._record.continues
    page = page_of(following)
    following._rendezvous.note(Back("worker:1", 2.5))
    following._announce()  # in the journal before the page reads it

    async def run() -> dict[str, Any]:
        async with shown(following, page, continues=True) as showing:
            await until(lambda: len(page._history.marks) > 1)
            following._rendezvous.note(Checkpoint(40, 1000, 0.25))
            following._rendezvous.end(Exit.OK, "")
            await showing
            found: dict[str, Any] = json.loads(await page.state())
            return found

    found = soon(run())
    following._record.lock.close()
    assert texts(found) == [
        "worker:1 lost (killed by SIGKILL); the others continue",
        "worker:1 runs again after 2.5 s",
        "checkpoint of step 40",
        "the job is done",
    ]
    assert kept(chief)["history"]["marks"] == found["history"]["marks"]
    assert json.loads(layout.history(chief._agent.spec.directory).read_text())["history"]["marks"] == []


def test_marks_that_version_0_2_kept_come_before_those_of_the_journal(live: LivePage, chief: Chief) -> None:
    before = History(marks=[Mark(time.time() - 60, "lost", "worker:2 lost", "worker:2")])
    history.save(chief._agent.spec.directory, document.pieces(live._view(chief.status()), before))

    async def run() -> dict[str, Any]:
        async with shown(chief, live, continues=True) as showing:
            await until(lambda: live._history.marks)
            chief._rendezvous.note(LOST)
            chief._rendezvous.end(Exit.OK, "")
            await showing
            found: dict[str, Any] = json.loads(await live.state())
            return found

    wanted = ["worker:2 lost", "worker:1 lost (killed by SIGKILL); the others continue", "the job is done"]
    assert texts(soon(run())) == wanted
    assert texts(kept(chief)) == wanted


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"version": 1, "history": {"job": {"time": ["x"]}}}', "\0"])
def test_a_history_that_cannot_be_read_is_one_line_and_a_new_one_begins(
    text: str, live: LivePage, chief: Chief, capsys: pytest.CaptureFixture[str]
) -> None:
    (layout.make_own(chief._agent.spec.directory) / "history.json").write_text(text)

    async def run() -> None:
        async with shown(chief, live, continues=True):
            await until(lambda: live._history.job.time)

    soon(run())
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(str(layout.history(chief._agent.spec.directory)))
    assert line.endswith("; a new one begins")


def test_what_was_lost_is_kept_at_once_and_a_checkpoint_with_the_next(live: LivePage, chief: Chief) -> None:
    async def run() -> tuple[bool, list[str]]:
        file = layout.history(chief._agent.spec.directory)
        async with shown(chief, live):
            await until(file.exists)
            first = file.stat().st_ino
            chief._rendezvous.note(Checkpoint(5))
            await until(lambda: live._history.marks)
            due = live._save_at <= time.time() + 1
            chief._rendezvous.note(LOST)
            await until(lambda: file.stat().st_ino != first)
        return due, texts(kept(chief))

    due, marks = soon(run())
    assert not due
    assert marks == ["checkpoint of step 5", "worker:1 lost (killed by SIGKILL); the others continue"]


def test_a_reader_that_does_not_keep_up_is_ended(live: LivePage) -> None:
    async def run() -> list[str]:
        slow, quick = live.subscribe(), live.subscribe()
        for number in range(MOST_WAITING + 1):
            live._emit("mark", str(number))
            quick.get_nowait()
        live.unsubscribe(quick)
        return [slow.get_nowait() for _ in range(slow.qsize())]

    assert soon(run()) == [""]


def test_a_defect_of_the_page_is_a_line_in_the_log_and_none_of_the_job(
    live: LivePage, chief: Chief, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def defect(*_: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(live_page, "tasks_point", defect)

    async def run() -> None:
        async with shown(chief, live) as showing:
            await showing

    soon(run())
    assert capsys.readouterr().out == "warning: the page is no longer updated: KeyError: 'x'\n"
    assert not chief._rendezvous.over


def test_lines_of_the_chief_are_there_and_a_question_of_nobody_forgets_them(live: LivePage, chief: Chief) -> None:
    chief._agent.logs.add("a line of the chief")
    found = json.loads(soon(live.logs(LogQuery())))
    assert [(row["task"], row["text"]) for row in found["lines"]] == [("worker:0", "a line of the chief")]


def test_a_model_dir_that_cannot_be_written_is_no_error(live: LivePage, chief: Chief) -> None:
    (layout.make_own(chief._agent.spec.directory) / "history.json").mkdir()
    soon(live._save(chief.status(), live=True))
    assert layout.history(chief._agent.spec.directory).is_dir()
