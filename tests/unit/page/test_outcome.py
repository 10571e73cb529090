"""How a job has ended, with which its page begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeAlias

import pytest

from trainer.job.errors import Exit
from trainer.model_dir import journal, layout, result
from trainer.model_dir.result import Result, Training
from trainer.model_dir.stacks import Frame, Group, Stacks
from trainer.page.outcome import Job, outcome
from trainer.protocol.facts import Began, Cause, Ended, Fact, Formed, Loss, Lost, Note, entry
from trainer.protocol.status import End

Found: TypeAlias = dict[str, Any]
LOST = Lost("worker:1", Loss(Cause.KILLED, signal="SIGKILL"), "re_forming")


def ended(tmp_path: Path, code: int, message: str, *recorded: Fact, hangs: tuple[Stacks, ...] = ()) -> Found:
    write(tmp_path, Began(), Formed(1, 2), *recorded, Ended(code, message, "worker:0"))
    return outcome(Job("j", "worker:0", str(tmp_path), End(code, message), hangs), "trainer debug x", hide)


def write(tmp_path: Path, *recorded: Fact) -> None:
    journal.append(str(tmp_path), 1, [entry(10.0 + at, fact).document() for at, fact in enumerate(recorded)])


def hide(text: str) -> str:
    return text.replace("hunter2", "[hidden]")


def test_a_job_that_is_done_has_its_figures_its_paths_its_time_and_what_happened(tmp_path: Path) -> None:
    layout.exported_model(tmp_path).parent.mkdir()
    layout.exported_model(tmp_path).touch()
    training = Training(5000, {"accuracy": 0.97}, 3604.2, 2.5, {}, None, None, {"model.keras": "equal"})
    result.write(str(tmp_path), Result("j", "one_device", training, 185.0, 2, [], {}, [], {}, {}, {}))
    found = ended(tmp_path, 0, "", LOST)
    assert (found["kind"], found["headline"]) == ("done", "j succeeded after 3 min 5 s")
    assert found["rows"] == [
        ["steps", "5,000"], ["test_accuracy", "0.97"], ["examples_per_second", "3,604"],
        ["seconds_to_first_step", "2.5"], ["exports", "equal"], ["generations", "2"],
        ["model", str(layout.exported_model(tmp_path))], ["result", str(layout.result(tmp_path))],
    ]  # fmt: skip
    assert found["happened"] == [[12.0, "worker:1 lost (killed by SIGKILL), re-forming"]]


def test_a_result_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    assert ended(tmp_path, 0, "")["rows"] == []
    (layout.make_own(tmp_path) / "result.json").write_text('{"version": 99}')
    found: Found = outcome(Job("j", "worker:0", str(tmp_path), End(0, "")), "")
    (row,) = found["rows"]
    assert row[0] == "warning"
    assert "version: 99" in row[1]


def test_a_failed_job_has_the_verdict_the_users_line_and_what_to_try(tmp_path: Path) -> None:
    message = "worker:0: workload: slow.py:9: ValueError: password=hunter2"
    found = ended(tmp_path, 2, message)
    assert found["kind"] == "failed"
    assert found["headline"] == f"j failed with exit code 2: {message.replace('hunter2', '[hidden]')}"
    rows = found["rows"]
    assert rows[0] == ["in the code", "slow.py:9"]
    (advice,) = [text for name, text in rows if name == "to try"]
    assert advice.startswith("correct that line; ")
    assert rows[-2:] == [["exit code", f"2: {Exit.USER.meaning}"], ["all that is known", "trainer debug x"]]


def test_the_last_words_of_the_task_that_failed_explain_its_exit(tmp_path: Path) -> None:
    layout.logs(tmp_path).mkdir(parents=True)
    trace = 'Traceback (most recent call last):\n  File "train.py", line 7, in main\nKeyError: 3\n'
    (layout.logs(tmp_path) / "worker-0.log").write_text(trace)
    loss = Loss(Cause.EXITED, status=1)
    write(tmp_path, Began(), Ended(14, "x", "worker:0", loss))
    found: Found = outcome(Job("j", "chief:0", str(tmp_path), End(14, "x")), "")
    assert any("KeyError: 3" in row[1] for row in found["rows"])


def test_a_stopped_job_is_stopped_and_says_where_it_hung(tmp_path: Path) -> None:
    threads = [[Frame("slow.py", 15, "rows", True)]]
    hang = Stacks(1e9, "2 tasks wait (slow.py:15)", [Group(["worker:0"], "", "", threads)])
    found = ended(tmp_path, 143, "stopped by a signal; no checkpoint was written yet", hangs=(hang,))
    assert found["kind"] == "stopped"
    assert found["headline"].startswith("j was stopped: ")
    assert found["rows"][:2] == [["in the code", "slow.py:15"], ["more", "2 tasks wait (slow.py:15)"]]


@pytest.mark.parametrize("count", [0, 30])
def test_only_the_newest_of_this_start_is_shown(tmp_path: Path, count: int) -> None:
    write(tmp_path, Began(), Note("before"))
    found = ended(tmp_path, 0, "", *(Note(str(number)) for number in range(count)))
    assert [text for _, text in found["happened"]] == [str(number) for number in range(count)][-8:]
