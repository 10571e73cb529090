"""What earlier versions have written is read by this one: specs, every file of a model_dir, and answers of /status.

The files are in tests/compatibility, whose README says how they were made. tests/local/test_compatibility.py continues
their jobs.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import threading
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import trainer
from trainer.cli import main as cli
from trainer.job.errors import Exit, UserError
from trainer.job.load import load_file
from trainer.model_dir import checkpoint, history, layout, result
from trainer.model_dir import state as job_state
from trainer.model_dir.result import Ran, Training
from trainer.page import files
from trainer.protocol import status
from trainer.protocol.reports import read_question
from trainer.supervisor.rendezvous import admission

FILES = Path(__file__).parents[1] / "compatibility"
VERSIONS = sorted(path.name for path in FILES.glob("[0-9]*"))
WITHDRAWN = {"communication.prefetch", "tracking"}
"""Keys of a spec that this version may lack. docs/compatibility.md names what takes their place."""


@pytest.fixture(params=VERSIONS)
def version(request: pytest.FixtureRequest) -> Path:
    """The files of one version."""
    path = FILES / str(request.param)
    assert isinstance(path, Path)
    return path


def copy(version: Path, job: str, folder: Path) -> str:
    """The model_dir of a job of that version, as its own."""
    return str(shutil.copytree(version / job, folder / job))


def content(model_dir: str, name: str) -> Any:
    return json.loads(Path(model_dir, name).read_text())


# Specs. -----------------------------------------------------------------------------------------------


def missing(before: dict[str, Any], now: dict[str, Any], path: str = "") -> Iterator[str]:
    """Paths of what is not as it was, but for what has come to it."""
    for name, value in before.items():
        place = f"{path}{name}"
        if isinstance(value, dict) and isinstance(now.get(name), dict):
            yield from missing(value, now[name], f"{place}.")
        elif name not in now or now[name] != value:
            yield place


def specs() -> list[Path]:
    return sorted(FILES.glob("[0-9]*/specs/*.yaml"))


@pytest.mark.parametrize("path", specs(), ids=lambda path: path.stem)
def test_a_spec_has_the_meaning_that_it_had(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parents[1])
    now = load_file(f"specs/{path.name}", environ={}).model_dump(mode="json")
    assert set(missing(json.loads(path.with_suffix(".json").read_text()), now)) <= WITHDRAWN


def test_a_changed_meaning_of_a_spec_is_found() -> None:
    before = {"name": "j", "train": {"steps": 4, "seed": 0}}
    assert list(missing(before, {"name": "j", "train": {"steps": 4, "seed": 1}})) == ["train.seed"]
    assert list(missing(before, {"name": "j"})) == ["train"]


# A model_dir. -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("job", ["mirrored", "server"])
def test_the_result_of_a_job_that_trained(version: Path, job: str, tmp_path: Path) -> None:
    model_dir = copy(version, job, tmp_path)
    found, raw = result.read(model_dir), content(model_dir, "result.json")
    assert found is not None
    assert isinstance(found.figures, Training)
    assert (found.job, found.status, found.figures.steps, found.generations) == (job, "succeeded", 40, 1)
    assert found.figures.test == {name: raw[f"test_{name}"] for name in ("accuracy", "loss", "top")}
    assert found.figures.seconds_to_first_step == raw["seconds_to_first_step"]
    assert [event.text for event in found.events] == [event["text"] for event in raw["events"]]
    assert found.spec["name"] == job
    run = trainer.attach(model_dir)
    assert run.status().phase == "done"
    assert run.result.test_accuracy == raw["test_accuracy"]


def test_the_result_of_a_job_with_a_program(version: Path, tmp_path: Path) -> None:
    model_dir = copy(version, "program", tmp_path)
    found = result.read(model_dir)
    assert found is not None
    assert isinstance(found.figures, Ran)
    assert found.figures.reported == {"loss": 0.025, "reward": 1.0, "note": "half"}
    assert trainer.attach(model_dir).result.reward == 1.0


def test_the_best_checkpoint_of_a_result(version: Path, tmp_path: Path) -> None:
    model_dir = copy(version, "mirrored", tmp_path)
    found = result.read(model_dir)
    assert found is not None
    assert isinstance(found.figures, Training)
    assert found.figures.best is not None
    assert vars(found.figures.best) == content(model_dir, "result.json")["best"]
    assert checkpoint.steps(layout.best(model_dir)) == [found.figures.best.step]


@pytest.mark.parametrize("job", ["mirrored", "server", "program"])
def test_the_page_of_a_job_that_is_over(version: Path, job: str, tmp_path: Path) -> None:
    model_dir = copy(version, job, tmp_path)
    kept, shown = content(model_dir, "history.json"), json.loads(files.text(model_dir))
    assert shown["live"] is False
    assert shown["status"]["phase"] == "done"
    assert shown["job"]["spec"]["name"] == job
    assert shown["history"] == kept["history"]
    loaded = history.load(model_dir)
    assert loaded is not None
    assert [mark.text for mark in loaded.marks] == [mark["text"] for mark in kept["history"]["marks"]]
    assert list(loaded.job.time)[:-1] == kept["history"]["job"]["time"]
    assert {name for name, *_ in loaded.tasks.columns} == set(kept["history"]["tasks"])


def test_a_page_is_made_of_the_files_where_there_is_no_history(version: Path, tmp_path: Path) -> None:
    model_dir = copy(version, "mirrored", tmp_path)
    layout.history(model_dir).unlink()
    shown = json.loads(files.text(model_dir))
    assert shown["history"]["job"]["step"] == [5, 10, 15, 20, 25, 30, 35, 40]
    assert {mark["kind"] for mark in shown["history"]["marks"]} >= {"checkpoint", "score"}


@pytest.mark.parametrize("job", ["mirrored", "server", "stopped", "killed"])
def test_checkpoints_are_intact_and_described(version: Path, job: str, tmp_path: Path) -> None:
    model_dir = copy(version, job, tmp_path)
    steps = checkpoint.steps(model_dir)
    assert len(steps) == 2
    for step in steps:
        found = checkpoint.verify(checkpoint.folder(model_dir) / checkpoint.name(step))
        assert found is not None
        assert found.step == step
        assert {each["path"] for each in found.meta["variables"].values()} >= {
            "sequential/dense/kernel",
            "adam/iteration",
        }
        assert found.meta["compatibility_key"]["train.seed"] == 7


def test_how_a_stopped_job_has_ended(version: Path, tmp_path: Path) -> None:
    model_dir = copy(version, "stopped", tmp_path)
    (step, newest), raw = checkpoint.steps(model_dir), content(model_dir, "state.json")
    assert step < newest
    end = job_state.load(model_dir, 0.0).end
    assert end is not None
    assert (end.code, end.message) == (Exit.STOPPED, raw["end"]["message"])
    found = trainer.attach(model_dir).status()
    assert (found.name, found.phase, found.code) == ("stopped", "stopped", Exit.STOPPED)
    assert f"the checkpoint of step {newest} is kept" in (found.last_line or "")


def test_a_killed_job_left_the_state_of_a_running_one(version: Path, tmp_path: Path) -> None:
    model_dir = copy(version, "killed", tmp_path)
    raw, state = content(model_dir, "state.json"), job_state.load(model_dir, 0.0)
    assert (state.generation, state.end) == (1, None)
    assert (state.started, state.control_port, state.step) == tuple(
        raw[name] for name in ("started", "control_port", "step")
    )
    assert [event.text for event in state.events] == [event["text"] for event in raw["events"]]
    newest = checkpoint.steps(model_dir)[-1]
    with pytest.raises(UserError, match=rf"stopped or failed after the checkpoint of step {newest}; the same command"):
        trainer.attach(model_dir).status()


@pytest.mark.parametrize(
    ("job", "lines"),
    [
        ("mirrored", {"phase": "done", "steps": "40", "generations": "1"}),
        ("program", {"phase": "done", "reward": "1", "note": "half"}),
        ("stopped", {"phase": "stopped"}),
    ],
)
def test_trainer_status(
    version: Path, job: str, lines: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model_dir = copy(version, job, tmp_path)
    cli.main(["status", model_dir])
    shown = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines() if line)
    assert lines.items() <= shown.items()


@pytest.mark.parametrize("job", ["mirrored", "server", "stopped", "killed", "program"])
def test_trainer_logs(version: Path, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["logs", copy(version, job, tmp_path)]) == Exit.OK
    assert "generation 1 formed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("job", "verdict"),
    [
        ("mirrored", "mirrored succeeded"),
        ("program", "program succeeded"),
        ("stopped", "stopped was stopped: stopped by a signal; the checkpoint of step"),
        ("killed", "its processes were killed, or the machine was restarted"),
    ],
)
def test_trainer_debug(
    version: Path, job: str, verdict: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model_dir = copy(version, job, tmp_path)
    archive = tmp_path / "debug.zip"
    assert cli.main(["debug", model_dir, "--output", str(archive)]) == Exit.OK
    assert verdict in capsys.readouterr().out
    with zipfile.ZipFile(archive) as found:
        names = {name.partition("/")[2] for name in found.namelist()}
    assert {"index.html", "model_dir/metrics.jsonl"} <= names or job == "program"


# /status. ---------------------------------------------------------------------------------------------


def answer(version: Path, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((version / "status" / f"{name}.json").read_text())
    return found


def test_the_answer_of_a_chief(version: Path) -> None:
    raw = answer(version, "stopped-chief")
    found = status.read(json.dumps(raw))
    assert (found.job, found.task, found.phase, found.generation, found.end) == (
        "stopped", "worker:0", "running", 1, None,
    )  # fmt: skip
    assert found.last_checkpoint == raw["last_checkpoint"]
    assert [event.text for event in found.events] == [event["text"] for event in raw["events"]]
    assert {name: row.state for name, row in found.tasks.items()} == dict.fromkeys(raw["tasks"], "running")
    assert_figures(found.figures, raw)
    for name, row in found.tasks.items():
        assert_figures(row.figures, raw["tasks"][name])


def assert_figures(figures: Mapping[str, object], raw: dict[str, Any]) -> None:
    """The user's figures are there, and no field of trainer's own is among them."""
    assert {name: figures.get(name) for name in ("accuracy", "top")} == {
        name: raw.get(name) for name in ("accuracy", "top")
    }
    assert not {"state", "restarts", "standby", "generation"} & set(figures)


def test_the_answer_of_a_chief_whose_program_reports(version: Path) -> None:
    raw = answer(version, "program-chief")
    found = status.read(json.dumps(raw))
    assert {name: found.figures[name] for name in ("reward", "note")} == {"reward": raw["reward"], "note": "half"}


def test_a_report_of_that_version_is_understood_so_that_the_chief_names_the_difference(version: Path) -> None:
    report = read_question((version / "status" / "report.json").read_bytes()).report
    chief = replace(report, task="worker:0", spec="of this version", versions={**report.versions, "trainer": "99"})
    difference = admission.mismatch(report, chief, report.cluster, ["worker:0", "worker:1"], ["worker:1"], "digits")
    assert difference == f"worker:1 has trainer {version.name}, the chief 99; use one image for all tasks"


def test_a_malformed_report_of_this_version_is_none(version: Path) -> None:
    asked = json.loads((version / "status" / "report.json").read_bytes())
    asked["report"]["versions"]["trainer"] = trainer.__version__
    asked["report"]["surprise"] = 1
    with pytest.raises(ValueError, match="report"):
        read_question(json.dumps(asked).encode())


@contextlib.contextmanager
def served(raw: dict[str, Any], incarnation: str) -> Iterator[int]:
    """The port of a chief that gives an answer which was kept."""

    class Chief(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = {"/healthz": {"incarnation": incarnation}, "/status": raw}.get(self.path)
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Chief) as server:
        threading.Thread(target=server.serve_forever).start()
        yield server.server_port
        server.shutdown()


@pytest.mark.parametrize("job", ["stopped", "program"])
def test_trainer_status_of_a_job_that_runs_with_that_version(
    version: Path, job: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model_dir, raw = copy(version, "killed", tmp_path), answer(version, f"{job}-chief")
    state = content(model_dir, "state.json")
    with job_state.lock(model_dir), served(raw, state["incarnation"]) as port:
        Path(model_dir, "state.json").write_text(json.dumps({**state, "control_port": port}))
        found = trainer.attach(model_dir).status()
        assert (found.name, found.phase, set(found.tasks)) == (job, "running", set(raw["tasks"]))
        cli.main(["status", model_dir])
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["step", str(raw["step"]), "of", "40"] in shown
    assert ["loss", f"{raw['loss']:.4g}"] in shown
    tasks = {words[0]: words[1:3] for words in shown if words and words[0] in raw["tasks"]}
    assert tasks == {name: ["running", str(row.get("step", 1))] for name, row in raw["tasks"].items()}


# Newer versions. --------------------------------------------------------------------------------------


def test_a_result_of_a_newer_version_is_refused_in_one_line(version: Path, tmp_path: Path) -> None:
    model_dir = copy(version, "mirrored", tmp_path)
    Path(model_dir, "result.json").write_text(json.dumps({**content(model_dir, "result.json"), "version": 99}))
    with pytest.raises(UserError, match=rf"version: 99: this trainer reads versions up to {result.VERSION}"):
        result.read(model_dir)


def test_a_status_of_a_newer_version_is_refused_in_one_line(version: Path) -> None:
    raw = {**answer(version, "stopped-chief"), "version": 99}
    with pytest.raises(ValueError, match=rf"version: 99: this trainer reads versions up to {status.VERSION}"):
        status.read(json.dumps(raw))
