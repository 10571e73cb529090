"""The page of a model_dir: of this version, of earlier ones, of one that somebody has spoilt."""

from __future__ import annotations

import asyncio
import json
import resource
from pathlib import Path
from typing import Any

import pytest

from trainer.job.errors import Exit
from trainer.model_dir import journal, layout
from trainer.model_dir import state as job_state
from trainer.page import files
from trainer.page.files import FilesPage
from trainer.page.lines import LogQuery
from trainer.protocol.facts import Began, Checkpoint, Ended, Formed, entry

KEPT: dict[str, Any] = {
    "version": 1, "live": True, "now": 1.7e9, "eta": 12.0,
    "status": {"version": 2, "phase": "running", "step": 5, "end": None, "figures": {"loss": 0.5}},
    "job": {"spec": {"name": "j"}}, "history": {"job": {"time": [1.0]}, "tasks": {}, "marks": []},
}  # fmt: skip
RESULT = {
    "version": 1, "status": "succeeded", "job": "j", "strategy": "one_device", "steps": 400, "test_accuracy": 0.9,
    "generations": 2, "seconds": 40.0, "compatibility_key": {}, "tasks": {"worker:0": "task=worker:0 ..."},
    "events": [{"time": 1.7e9, "text": "worker:1 lost (killed by SIGKILL), re-forming"}],
    "hangs": [{"time": 1.7e9, "text": "worker:1 is at mine.py:41 read()", "groups": []}],
    "spec": {"name": "j", "env": {"API_KEY": "very-secret-value"}},
}  # fmt: skip


def write(folder: Path, **content: Any) -> str:
    for name, value in content.items():
        lines = value if isinstance(value, list) else [value]
        suffix = "jsonl" if isinstance(value, list) else "json"
        place = layout.make_own(folder) if suffix == "json" else folder
        (place / f"{name}.{suffix}").write_text("".join(json.dumps(each) + "\n" for each in lines))
    return str(folder)


def document(model_dir: str) -> dict[str, Any]:
    assert files.exists(model_dir)
    found: dict[str, Any] = json.loads(files.text(model_dir))
    return found


def lines(model_dir: str, **query: Any) -> list[tuple[str, str]]:
    found = json.loads(asyncio.run(FilesPage(model_dir).logs(LogQuery(**query))))
    return [(row["task"], row["text"]) for row in found["lines"]]


def test_what_the_chief_kept_is_shown_as_it_was_but_no_longer_live(tmp_path: Path) -> None:
    found = document(write(tmp_path, history=KEPT))
    assert found == {**KEPT, "version": 2, "live": False, "eta": None}


def test_what_version_0_2_kept_has_its_figures_where_the_page_reads_them(tmp_path: Path) -> None:
    row = {"state": "running", "generation": 1, "restarts": 0, "standby": False}
    status = {
        "version": 1, "job": "j", "phase": "running", "step": 5, "loss": 0.5, "end": None,
        "tasks": {"worker:0": {**row, "step": 5, "examples_per_second": 10.0}},
    }  # fmt: skip
    marks = [{"time": 1.5, "kind": "lost", "text": "worker:0 lost", "task": "worker:0"}]
    history = {**KEPT["history"], "marks": marks}
    found = document(write(tmp_path, history={**KEPT, "status": status, "history": history}))
    assert (found["status"]["step"], found["status"]["figures"]) == (5, {"loss": 0.5})
    assert found["status"]["tasks"]["worker:0"] == {**row, "step": 5, "figures": {"examples_per_second": 10.0}}
    assert found["history"]["marks"] == marks


def test_the_marks_are_those_of_the_journal_behind_those_of_version_0_2(tmp_path: Path) -> None:
    marks = [{"time": 1.5, "kind": "lost", "text": "worker:0 lost", "task": "worker:0"}]
    facts = [Began("run"), Formed(2, 1), Checkpoint(40, 1000, 0.25), Ended(int(Exit.STOPPED), "stopped by a signal")]
    lines = [entry(2.0 + at, fact, 2, 10 * at).document() for at, fact in enumerate(facts)]
    journal.append(str(tmp_path), 1, lines)
    found = document(write(tmp_path, history={**KEPT, "history": {**KEPT["history"], "marks": marks}}))
    assert found["history"]["marks"] == [
        *marks,
        {"time": 3.0, "kind": "formed", "text": "generation 2 formed: 1 task", "generation": 2},
        {
            "time": 4.0, "kind": "checkpoint", "text": "checkpoint of step 40", "generation": 2, "step": 40,
            "bytes": 1000, "seconds": 0.25,
        },
        {"time": 5.0, "kind": "stopped", "text": "stopped by a signal", "generation": 2, "step": 30},
    ]  # fmt: skip


def test_a_journal_alone_is_shown(tmp_path: Path) -> None:
    """The chief was killed before it had saved a history."""
    journal.append(str(tmp_path), 1, [entry(2.0, Formed(1, 3), 1).document()])
    assert [mark["text"] for mark in document(str(tmp_path))["history"]["marks"]] == ["generation 1 formed: 3 tasks"]


def test_a_chief_that_was_killed_after_it_saved_has_the_end_that_the_state_knows(tmp_path: Path) -> None:
    job_state.save(str(tmp_path), job_state.State(generation=1, end=job_state.End("j", 13, "nan at step 7")))
    found = document(write(tmp_path, history=KEPT))["status"]
    assert (found["phase"], found["end"], found["step"]) == ("failed", {"code": 13, "message": "nan at step 7"}, 5)


def test_a_result_is_the_end_of_a_job(tmp_path: Path) -> None:
    found = document(write(tmp_path, history=KEPT, result=RESULT))["status"]
    assert (found["phase"], found["end"]["code"]) == ("done", 0)


@pytest.mark.parametrize("what", ["missing", "half", "newer", "hostile"])
def test_a_model_dir_of_an_earlier_version_shows_what_its_files_tell(what: str, tmp_path: Path) -> None:
    curve = [
        {"step": n, "loss": 1 / n, "accuracy": 0.5, "examples_per_second": 100, "time": 1.7e9 + n} for n in (5, 10)
    ]
    scores = [{"step": 10, "accuracy": 0.875, "time": 1.7e9 + 11}]
    write(tmp_path, result=RESULT, metrics=curve, evaluation=scores)
    if what != "missing":
        text = {"half": json.dumps(KEPT)[:50], "newer": json.dumps({**KEPT, "version": 3}), "hostile": "[" * 100_000}
        (layout.make_own(tmp_path) / "history.json").write_text(text[what])
    found = document(str(tmp_path))
    assert found["version"] == 2
    assert not found["live"]
    assert found["history"]["job"] == {
        "time": [1700000005, 1700000010], "step": [5, 10], "loss": [0.2, 0.1], "examples_per_second": [100, 100],
        "metrics": {"accuracy": [0.5, 0.5]},
    }  # fmt: skip
    assert [mark["text"] for mark in found["history"]["marks"]] == [
        "worker:1 lost (killed by SIGKILL), re-forming",
        "step 10: accuracy=0.875",
    ]
    assert (found["status"]["phase"], found["status"]["step"]) == ("done", 400)
    assert found["status"]["figures"] == {"test_accuracy": 0.9}
    assert found["status"]["tasks"]["worker:0"]["state"] == "done"
    assert found["status"]["hangs"] == RESULT["hangs"]
    assert found["job"]["spec"]["name"] == "j"
    assert "very-secret-value" not in json.dumps(found)


def test_a_job_that_failed_before_its_first_line_shows_its_end(tmp_path: Path) -> None:
    job_state.save(str(tmp_path), job_state.State(end=job_state.End("j", 2, "workload: no model()")))
    found = document(str(tmp_path))
    assert found["status"]["end"] == {"code": 2, "message": "workload: no model()"}
    assert found["history"]["job"]["time"] == []


def test_of_a_long_curve_some_points_are_shown_and_bad_lines_left_out(tmp_path: Path) -> None:
    rows = [{"step": n, "loss": 0.5, "time": 1.7e9 + n} for n in range(5000)]
    write(tmp_path, metrics=[*rows, {"step": "x"}, [1], None])
    found = document(str(tmp_path))["history"]["job"]
    assert 300 <= len(found["step"]) <= 600
    assert (found["step"][0], found["step"][-1] > 4900) == (0, True)


def test_a_folder_without_a_job_has_no_page(tmp_path: Path) -> None:
    assert not files.exists(str(tmp_path))
    assert not files.exists(str(tmp_path / "gone"))


def test_the_logs_of_all_tasks_are_merged_and_searched(tmp_path: Path) -> None:
    logs = layout.logs(tmp_path)
    logs.mkdir(parents=True)
    at = "2026-11-25 01:02:0{}.500000: I tensorflow/x.cc:1] {}\n"
    (logs / "worker-0.log").write_text(at.format(3, "first") + "of the first\n" + at.format(6, "fourth"))
    (logs / "ps-0.log").write_text(at.format(4, "second") + at.format(5, "third"))
    (logs / "worker-0.1.log").write_text(at.format(2, "of a file that was full"))
    (logs / "worker-1.log").write_bytes(b"")
    (logs / "evil.log").symlink_to("/etc/passwd")
    (logs / "ps-9.log").mkdir()
    found = lines(write(tmp_path, result=RESULT))
    assert [(task, text.rpartition("] ")[2]) for task, text in found] == [
        ("worker:0", "of a file that was full"),
        ("worker:0", "first"), ("worker:0", "of the first"), ("ps:0", "second"), ("ps:0", "third"),
        ("worker:0", "fourth"),
    ]  # fmt: skip
    assert [task for task, _ in lines(str(tmp_path), search="THIRD")] == ["ps:0"]


def test_what_trainer_local_has_printed_is_there_by_task(tmp_path: Path) -> None:
    logs = layout.logs(tmp_path)
    logs.mkdir(parents=True)
    (logs / "output.log").write_text(
        "2026-11-25T01:02:03.250Z chief:0     | step 5/10 | loss=1\nrubbish\n"
        "2026-11-25T01:02:04.000Z local       | <b>\n"
    )
    assert lines(str(tmp_path)) == [("chief:0", "step 5/10 | loss=1"), ("local", "<b>")]


def test_what_a_program_writes_to_stderr_is_in_two_files_and_shown_once(tmp_path: Path) -> None:
    logs = layout.logs(tmp_path)
    logs.mkdir(parents=True)
    printed = "2026-11-25T01:02:0{}.000Z worker:{}    | {}\n"
    (logs / "output.log").write_text(
        printed.format(1, 0, "to stdout") + printed.format(2, 0, "twice") + printed.format(3, 0, "twice")
        + printed.format(4, 1, "of another task")
    )  # fmt: skip
    (logs / "worker-0.log").write_text("twice\ntwice\nbefore the end of output.log\nof another task\n")
    assert sorted(lines(str(tmp_path))) == [
        ("worker:0", "before the end of output.log"), ("worker:0", "of another task"), ("worker:0", "to stdout"),
        ("worker:0", "twice"), ("worker:0", "twice"), ("worker:1", "of another task"),
    ]  # fmt: skip


def test_values_of_secrets_are_hidden_in_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = layout.logs(tmp_path)
    logs.mkdir(parents=True)
    (logs / "worker-0.log").write_text("calling with very-secret-value and from-a-variable\n")
    monkeypatch.setenv("TOKEN", "from-a-variable")
    spec: dict[str, Any] = {"env": {"API_KEY": "very-secret-value"}, "secrets": {"TOKEN": {}, "OTHER": {}}}
    found = lines(write(tmp_path, result={**RESULT, "spec": spec}))
    assert found == [("worker:0", "calling with [hidden: API_KEY] and [hidden: TOKEN]")]


def test_logs_of_500_mb_are_read_from_their_ends_in_bounded_memory(tmp_path: Path) -> None:
    logs = layout.logs(tmp_path)
    logs.mkdir(parents=True)
    for index in range(5):
        with (logs / f"worker-{index}.log").open("wb") as file:
            file.seek(100 << 20)  # a hole
            file.write(b"".join(b"line %d\n" % number for number in range(100_000)))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = lines(str(tmp_path), task="worker:3", limit=5000)
    used = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert found[-1] == ("worker:3", "line 99999")
    assert used < 200e6
