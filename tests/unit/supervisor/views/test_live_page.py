"""The chief's page without a cluster: its document, readers, and the file that outlasts it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from trainer.job.errors import Exit
from trainer.model_dir import history, layout
from trainer.model_dir.history import History, Mark
from trainer.page import document, files
from trainer.page.lines import LogQuery
from trainer.supervisor.chief.chief import Chief
from trainer.supervisor.views import live_page
from trainer.supervisor.views.live_page import MOST_WAITING, LivePage

T = TypeVar("T")


def soon(work: Coroutine[None, None, T]) -> T:
    return asyncio.run(asyncio.wait_for(work, 20))


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_page, "SAMPLE_SECONDS", 0.02)
    monkeypatch.setattr(live_page, "FIRST_LINES_SECONDS", 0.0)


@pytest.fixture
def live(chief: Chief) -> LivePage:
    chief.record.accepted = True
    return LivePage(chief._agent, chief)


async def until(reached: Callable[[], Any]) -> None:
    while not reached():
        await asyncio.sleep(0.01)


def kept(chief: Chief) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(files.text(chief._agent.spec.directory))
    return found


def test_the_document_has_the_status_and_the_spec(live: LivePage, chief: Chief) -> None:
    found = json.loads(soon(live.state()))
    assert found["live"]
    status = chief.status().document()
    assert found["status"].keys() == status.keys()
    assert found["status"]["tasks"] == status["tasks"]
    assert found["job"]["spec"]["name"] == "j"
    assert [*found["job"]["tf_config"]] == ["worker:0", "worker:1", "worker:2"]
    assert found["job"]["started"] == chief.record.state.started


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
        working = asyncio.create_task(live.run())
        await until(lambda: queue.qsize() > 1)
        chief.rendezvous.end(Exit.STOPPED, "stopped by a signal")
        await working
        await live.close()
        return [queue.get_nowait() for _ in range(queue.qsize())]

    *events, last = soon(run())
    assert last == ""
    assert events[0].startswith('event: points\ndata: {"time": ')
    assert '"text": "stopped by a signal"' in next(each for each in events if each.startswith("event: mark"))
    found = kept(chief)
    assert found["history"]["job"]["time"]
    assert found["history"]["marks"][-1]["kind"] == "stopped"


def test_the_next_chief_goes_on_with_what_the_one_before_has_kept(live: LivePage, chief: Chief) -> None:
    before = History(useful=5.0, wall=8.0)
    before.job.add(time.time() - 60, {("loss",): 0.5})
    before.mark(Mark(time.time() - 60, "lost", "worker:1 lost", "worker:1"))
    directory = chief._agent.spec.directory
    history.save(directory, document.pieces(live._view(), before))
    chief.record.begins = False

    async def run() -> dict[str, Any]:
        working = asyncio.create_task(live.run())
        await until(lambda: len(live._history.job.time) > 2)
        found: dict[str, Any] = json.loads(await live.state())
        working.cancel()
        return found

    found = soon(run())
    assert found["history"]["job"]["loss"][0] == 0.5
    assert [mark["text"] for mark in found["history"]["marks"]] == ["worker:1 lost"]
    assert found["counters"]["useful"] == 5.0


@pytest.mark.parametrize("text", ["{", "[" * 100_000, '{"version": 1, "history": {"job": {"time": ["x"]}}}', "\0"])
def test_a_history_that_cannot_be_read_is_one_line_and_a_new_one_begins(
    text: str, live: LivePage, chief: Chief, capsys: pytest.CaptureFixture[str]
) -> None:
    layout.history(chief._agent.spec.directory).write_text(text)
    chief.record.begins = False

    async def run() -> None:
        working = asyncio.create_task(live.run())
        await until(lambda: live._history.job.time)
        working.cancel()

    soon(run())
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith(str(layout.history(chief._agent.spec.directory)))
    assert line.endswith("; a new one begins")


def test_what_was_lost_is_kept_at_once_and_a_checkpoint_with_the_next(live: LivePage, chief: Chief) -> None:
    async def run() -> tuple[bool, bool]:
        working = asyncio.create_task(live.run())
        await until(lambda: layout.history(chief._agent.spec.directory).exists())
        live._mark(Mark(time.time(), "checkpoint", "checkpoint of step 5"))
        due = live._save_at <= time.time() + 1
        live._mark(Mark(time.time(), "lost", "worker:1 lost", "worker:1"))
        await until(lambda: "worker:1 lost" in json.dumps(kept(chief)))
        working.cancel()
        return due, "checkpoint of step 5" in json.dumps(kept(chief))

    assert soon(run()) == (False, True)


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
    soon(live.run())
    assert capsys.readouterr().out == "warning: the page is no longer updated: KeyError: 'x'\n"
    assert not chief.rendezvous.over


def test_lines_of_the_chief_are_there_and_a_question_of_nobody_forgets_them(live: LivePage, chief: Chief) -> None:
    chief._agent.logs.add("a line of the chief")
    found = json.loads(soon(live.logs(LogQuery())))
    assert [(row["task"], row["text"]) for row in found["lines"]] == [("worker:0", "a line of the chief")]


def test_a_model_dir_that_cannot_be_written_is_no_error(live: LivePage, chief: Chief) -> None:
    layout.history(chief._agent.spec.directory).mkdir()
    soon(live._save(live=True))
    assert layout.history(chief._agent.spec.directory).is_dir()
