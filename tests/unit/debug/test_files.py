"""The files of a model_dir in an archive: which have their content there, and what the history tells."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path

import pytest

from trainer.debug import archive, ends, files
from trainer.debug.ends import Ends
from trainer.debug.evidence import Evidence, Moment
from trainer.debug.redaction import Redactor
from trainer.model_dir import layout
from trainer.model_dir.stacks import Frame, Group, Stacks


def added(folder: Path, target: Path) -> tuple[Evidence, dict[str, str]]:
    """A folder's facts, and the texts of its archive by path in model_dir."""
    facts = Evidence("j", "here")
    archive.write(target, "f", Redactor(), lambda into: files.add_folder(into, facts, folder))
    with zipfile.ZipFile(target) as found:
        texts = {name: found.read(name).decode() for name in found.namelist()}
    return facts, {name.removeprefix(f"f/{files.FOLDER}/"): text for name, text in texts.items()}


@pytest.mark.parametrize(
    ("path", "has"),
    [
        ("result.json", True),
        ("checkpoints/step-00000005/meta.json", True),
        ("best/checkpoints/step-00000005/meta.json", True),
        ("metrics.jsonl", True),
        ("logs/worker-0.log", True),
        ("logs/worker-0.end.json", True),
        ("checkpoints/step-00000005/variables.npz", False),
        ("export/model.keras", False),
        ("notes.txt", False),
        ("deeper/result.json", False),
        (".secret", False),
        ("mlflow.json", False),
    ],
)
def test_documents_and_logs_have_their_content_and_weights_and_other_files_have_not(path: str, has: bool) -> None:
    assert files.wanted(path) is has


def test_all_files_are_listed_with_their_sizes_and_logs_belong_to_their_tasks(tmp_path: Path) -> None:
    run = tmp_path / "run"
    layout.logs(run).mkdir(parents=True)
    (layout.logs(run) / "worker-1.log").write_text("a line\n")
    (layout.logs(run) / "output.log").write_text("all lines\n")
    (run / "metrics.jsonl").write_text('{"step": 1}\n')
    (run / "model.bin").write_bytes(b"x" * 1234)
    facts, texts = added(run, tmp_path / "x.zip")
    assert texts["files.txt"].splitlines() == [
        "            10  .trainer/logs/output.log",
        "             7  .trainer/logs/worker-1.log",
        "            12  metrics.jsonl",
        "         1,234  model.bin",
    ]
    assert texts.keys() == {"files.txt", "logs/output.log.txt", "logs/worker-1.log.txt", "metrics.jsonl"}
    assert [(log.task, log.text) for log in facts.logs] == [("", "all lines\n"), ("worker:1", "a line\n")]


def test_files_of_a_program_with_the_names_of_trainer_s_are_listed_and_not_read(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "logs").mkdir(parents=True)
    (layout.make_own(run) / "state.json").write_text("{}")
    for name in ("state.json", "history.json", "logs/worker-0.log"):
        (run / name).write_text("of the program")
    facts, texts = added(run, tmp_path / "x.zip")
    assert texts.keys() == {"files.txt", "state.json"}
    assert json.loads(texts["state.json"]) == {}
    assert [line.split()[1] for line in texts["files.txt"].splitlines()] == [
        ".trainer/state.json", "history.json", "logs/worker-0.log", "state.json",
    ]  # fmt: skip
    assert facts.logs == []


def test_a_model_dir_that_version_0_2_has_begun_has_its_files_itself(tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "logs").mkdir(parents=True)
    (run / ".lock").touch()
    (run / "lease.json").write_text('{"number": 1, "incarnation": "x"}')
    (run / "logs" / "worker-0.log").write_text("a line\n")
    _, texts = added(run, tmp_path / "x.zip")
    assert texts.keys() == {"files.txt", "lease.json", "logs/worker-0.log.txt"}


def test_links_and_pipes_are_left_out(tmp_path: Path) -> None:
    run = tmp_path / "run"
    layout.logs(run).mkdir(parents=True)
    (tmp_path / "private").write_text("of the user")
    (layout.logs(run) / "link.log").symlink_to(tmp_path / "private")
    os.mkfifo(layout.logs(run) / "pipe.log")
    _, texts = added(run, tmp_path / "x.zip")
    assert texts == {"files.txt": ""}


def test_a_long_log_has_its_ends_and_a_share_of_the_room(tmp_path: Path) -> None:
    run = tmp_path / "run"
    layout.logs(run).mkdir(parents=True)
    (layout.logs(run) / "worker-0.log").write_text("".join(f"{number:07}\n" for number in range(400_000)))
    _, texts = added(run, tmp_path / "x.zip")
    log = texts["logs/worker-0.log.txt"]
    assert log.startswith("0000000\n")
    assert log.endswith("0399999\n")
    assert "[ trainer debug: left out here: " in log
    assert len(log) <= ends.MOST_BYTES + 200


@pytest.mark.parametrize(
    ("content", "why"),
    [("{half", "is no JSON, perhaps half written: 5 bytes"), ("[" * 100_000, "is no JSON, perhaps half written")],
    ids=["half", "deep"],
)
def test_a_document_that_is_no_json_is_not_shown(tmp_path: Path, content: str, why: str) -> None:
    """What of it is a variable of the user's cannot be told."""
    (tmp_path / "run").mkdir()
    (layout.make_own(tmp_path / "run") / "state.json").write_text(content)
    _, texts = added(tmp_path / "run", tmp_path / "x.zip")
    assert "state.json" not in texts
    assert texts["state.json.txt"].startswith(why)


def test_a_document_that_was_cut_off_is_not_shown(tmp_path: Path) -> None:
    def fill(target: archive.Archive) -> None:
        with target.part("result.json"):
            files.add(target, Evidence("j", "there"), "result.json", Ends(b"{", b"}", "5 of 7 bytes"))

    archive.write(tmp_path / "x.zip", "f", Redactor(), fill)
    with zipfile.ZipFile(tmp_path / "x.zip") as found:
        assert found.read("f/result.json.txt") == b"is too long: 1 bytes\n"


def test_the_marks_of_the_history_are_moments_whatever_a_program_has_written_there(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    marks: list[object] = [
        {"text": "generation 1 formed", "time": 5.0, "task": None},
        {"text": "worker:1 lost (x) password=hunter2", "time": "late", "task": "worker:1"},
        {"text": 7},
        "none",
    ]
    (layout.make_own(tmp_path / "run") / "history.json").write_text(json.dumps({"history": {"marks": marks}}))
    facts, _ = added(tmp_path / "run", tmp_path / "x.zip")
    path = f"{files.FOLDER}/history.json"
    assert facts.moments == [
        Moment("generation 1 formed", "", 5.0, path),
        Moment("worker:1 lost (x) password=[hidden]", "worker:1", None, path),
    ]
    others: list[object] = [{"history": []}, {"history": {"marks": {}}}, []]
    for other in others:
        (layout.make_own(tmp_path / "run") / "history.json").write_text(json.dumps(other))
        assert added(tmp_path / "run", tmp_path / "x.zip")[0].moments == []


@pytest.mark.parametrize("name", ["state.json", "result.json"])
def test_the_stacks_of_a_job_that_hung_are_known_after_its_end(tmp_path: Path, name: str) -> None:
    (tmp_path / "run").mkdir()
    threads = [[["slow.py", 15, "rows", True]]]
    group = {"tasks": ["worker:0"], "state": "", "doing": "in step 5", "threads": threads}
    hang = {"time": 5.0, "text": "worker:0 waits, password=hunter2", "groups": [group]}
    known = Group(["worker:0"], "", "in step 5", [[Frame("slow.py", 15, "rows", True)]])
    documents: list[tuple[object, list[Stacks]]] = [
        ([hang], [Stacks(5.0, "worker:0 waits, password=[hidden]", [known])]),
        ([{"time": "x"}], []),
        ("x", []),
    ]
    for found, expected in documents:
        (layout.make_own(tmp_path / "run") / name).write_text(json.dumps({"hangs": found}))
        assert added(tmp_path / "run", tmp_path / "x.zip")[0].hangs == expected


def test_a_folder_of_many_files_is_listed_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_LISTED", 3)
    (tmp_path / "run").mkdir()
    for number in range(5):
        (tmp_path / "run" / f"{number}.bin").touch()
    (layout.make_own(tmp_path / "run") / "state.json").write_text("{}")
    _, texts = added(tmp_path / "run", tmp_path / "x.zip")
    assert texts["files.txt"].splitlines()[3:] == ["... and more than 3 files"]
    assert json.loads(texts["state.json"]) == {}, "trainer's own files come first"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read all folders")
def test_a_folder_that_may_not_be_read_is_named(tmp_path: Path) -> None:
    layout.logs(tmp_path / "run").mkdir(parents=True)
    layout.logs(tmp_path / "run").chmod(0)
    _, texts = added(tmp_path / "run", tmp_path / "x.zip")
    assert texts["files.txt"] == f"{tmp_path}/run/logs: Permission denied\n"
