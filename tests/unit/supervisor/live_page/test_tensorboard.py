"""What the chief's supervisor adds to TensorBoard: texts of what happened, and shares of time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from trainer.job.errors import Exit, TrainerError
from trainer.model_dir.history import Mark
from trainer.protocol.status import Shares
from trainer.supervisor.live_page import tensorboard
from trainer.supervisor.live_page.tensorboard import Board

LOST = Mark(100.5, "lost", "worker:1 lost (killed by SIGKILL), re-forming", "worker:1", 1)


def held() -> None:
    """This chief has the lease."""


def write(
    folder: Path, fill: Callable[[Board], None], incarnation: str = "one", require: Callable[[], None] = held
) -> None:
    async def run() -> None:
        board = Board(str(folder), incarnation, require)
        fill(board)
        board.flush()
        await board.close(10)

    asyncio.run(run())


def read(folder: Path, run: str) -> EventAccumulator:
    return EventAccumulator(str(folder / "tensorboard" / run)).Reload()


def texts(folder: Path, tag: str) -> list[tuple[float, int, str]]:
    events = read(folder, "job").Tensors(tag)
    return [(each.wall_time, each.step, each.tensor_proto.string_val[0].decode()) for each in events]


def curves(folder: Path, run: str) -> dict[str, float]:
    """The value of each part, which is the same at both steps."""
    found = {}
    events = read(folder, run)
    for tag in events.Tags()["scalars"]:
        (first, last) = events.Scalars(tag)
        assert (first.step, last.step, first.value) == (40, 50, last.value)
        found[tag.removeprefix("share_of_time/")] = first.value
    return found


def shares(**parts: float) -> Shares:
    return Shares(**{name: parts.get(name) for name in ("input", "compute", "wait", "network", "between")})


def test_what_happens_is_a_text_of_its_kind_with_its_step(tmp_path: Path) -> None:
    def fill(board: Board) -> None:
        board.mark(LOST, 40, 3.2)
        board.mark(Mark(101.0, "checkpoint", "checkpoint of step 30", None, 1, 30), 40, 3.9)
        board.mark(Mark(102.0, "", "é <b>*two*</b>\nlines", None, 1), 40, 9.0)

    write(tmp_path, fill)
    assert texts(tmp_path, "events/lost") == [(100.5, 3, f"    step 40: {LOST.text}")]
    assert texts(tmp_path, "events/checkpoint") == [(101.0, 4, "    checkpoint of step 30")]
    assert texts(tmp_path, "events/other") == [(102.0, 9, "    step 40: é <b>*two*</b>\n    lines")]


def test_texts_of_one_moment_have_steps_of_their_own(tmp_path: Path) -> None:
    def five(board: Board) -> None:
        for _ in range(5):
            board.mark(LOST, 40, 3.0)

    write(tmp_path, five)
    assert [step for _, step, _ in texts(tmp_path, "events/lost")] == [3, 4, 5, 6, 7]


def test_each_task_has_a_run_and_the_job_the_means(tmp_path: Path) -> None:
    def fill(board: Board) -> None:
        tasks = {"worker:0": shares(input=0.5, compute=0.5), "worker:1": shares(input=0.25, compute=0.5, wait=0.25)}
        board.shares(100.0, 40, {**tasks, "ps:0": shares()})
        board.shares(101.0, 40, tasks)  # no new step
        board.shares(102.0, 50, tasks)

    write(tmp_path, fill)
    assert sorted(path.name for path in (tmp_path / "tensorboard").iterdir()) == ["job", "worker-0", "worker-1"]
    assert curves(tmp_path, "worker-0") == {"input": 0.5, "compute": 0.5}
    assert curves(tmp_path, "worker-1") == {"input": 0.25, "compute": 0.5, "wait": 0.25}
    assert curves(tmp_path, "job") == {"input": 0.375, "compute": 0.5, "wait": 0.25}


def test_of_very_many_tasks_there_are_only_the_means(tmp_path: Path) -> None:
    tasks = {f"worker:{i}": shares(input=1.0) for i in range(tensorboard.MOST_TASKS + 1)}
    write(tmp_path, lambda board: board.shares(100.0, 40, tasks))
    assert [path.name for path in (tmp_path / "tensorboard").iterdir()] == ["job"]


def test_the_next_chief_adds_files_and_repeats_nothing(tmp_path: Path) -> None:
    write(tmp_path, lambda board: board.mark(LOST, 40, 3.0))
    write(tmp_path, lambda board: board.mark(LOST, 30, 8.0), "two")
    assert len(list((tmp_path / "tensorboard" / "job").iterdir())) == 2
    assert [(step, text.partition(":")[0].strip()) for _, step, text in texts(tmp_path, "events/lost")] == [
        (3, "step 40"), (8, "step 30"),
    ]  # fmt: skip


def test_a_chief_that_has_lost_its_place_writes_nothing(tmp_path: Path) -> None:
    def lost() -> None:
        raise TrainerError("another one has it", Exit.REPLACED)

    write(tmp_path, lambda board: board.mark(LOST, 40, 3.0), require=lost)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_a_program_has_removed_begins_anew(tmp_path: Path) -> None:
    async def run() -> None:
        board = Board(str(tmp_path), "one", held)
        for seconds in (1.0, 2.0):
            board.mark(LOST, 40, seconds)
            board.flush()
            await board.close(10)
            if seconds == 1.0:
                next((tmp_path / "tensorboard" / "job").iterdir()).unlink()

    asyncio.run(run())
    assert [step for _, step, _ in texts(tmp_path, "events/lost")] == [2]


def test_a_folder_that_cannot_be_written_is_one_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tensorboard").write_text("a file")

    async def run() -> None:
        board = Board(str(tmp_path), "one", held)
        for _ in range(3):
            board.mark(LOST, 40, 3.0)
            board.flush()
            await board.close(10)

    asyncio.run(run())
    assert capsys.readouterr().out.count("warning: ") == 1


def test_a_disk_that_does_not_answer_costs_neither_memory_nor_the_end(tmp_path: Path) -> None:
    answers = threading.Event()

    def wait() -> None:
        answers.wait()

    async def run() -> int:
        board = Board(str(tmp_path), "one", wait)
        for _ in range(tensorboard.MOST_PENDING + 10):
            board.mark(LOST, 40, 3.0)
            board.flush()
            await asyncio.sleep(0)
        await board.close(0.1)
        answers.set()
        return len(board._pending)

    assert asyncio.run(asyncio.wait_for(run(), 60)) <= tensorboard.MOST_PENDING
