"""The `trainer` command, without running tasks."""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.commands import ROOT, SPEC, trainer, usage_error
from tests.unit.cli.test_describe import JOBS
from trainer import __version__
from trainer.api import job
from trainer.cli import main as cli
from trainer.job import environment
from trainer.job.errors import Exit, TrainerError
from trainer.job.load import load_file
from trainer.job.schema import schema
from trainer.model_dir import layout, result
from trainer.model_dir.result import Result, Training
from trainer.targets.local import run as local


def test_help_lists_the_exit_codes_and_working_examples() -> None:
    done = trainer("--help", env={**os.environ, "COLUMNS": "80"})
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    assert all(f" {int(code)} {code.meaning} " in words for code in Exit)
    assert max(map(len, done.stdout.splitlines())) <= 80
    examples = done.stdout.partition("examples:\n")[2].splitlines()
    assert len(examples) == 2
    for example in examples:
        _, _, spec, *overrides = shlex.split(example)
        assert load_file(ROOT / spec, overrides[1::2], {})


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert usage_error("--version") == 0
    assert capsys.readouterr().out == f"trainer {__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["chekc"], "invalid choice: 'chekc'"),
        ([], "the following arguments are required: COMMAND"),
        (["check"], "the following arguments are required: SPEC"),
        (["check", "x.yaml", "--port", "1"], "unrecognized arguments: --port 1"),
        (["local", "x.yaml", "--port", "http"], "invalid int value: 'http'"),
    ],
)
def test_wrong_usage(capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert usage_error(*words) == Exit.USER
    assert message in capsys.readouterr().err


def test_import_prints_a_spec_on_stdout_and_notes_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["import", str(ROOT / "tests/unit/tfjob/tfjobs/dist-mnist.yaml")]) == Exit.OK
    out, err = capsys.readouterr()
    (tmp_path / "imported.yaml").write_text(out)
    assert load_file(tmp_path / "imported.yaml").strategy == "parameter_server"
    assert err
    assert all(line.startswith("trainer: ") for line in err.splitlines())


def test_import_reads_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "tests/unit/tfjob/tfjobs/dist-mnist.yaml"
    assert cli.main(["import", str(path)]) == Exit.OK
    of_file = capsys.readouterr()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert cli.main(["import", "-"]) == Exit.OK
    assert capsys.readouterr() == of_file
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"kind: Pod")))
    assert cli.main(["import", "-"]) == Exit.USER
    assert "standard input: kind: 'Pod': must be a TFJob" in capsys.readouterr().err


def test_import_of_what_is_no_tfjob_is_a_users_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.yaml").write_text("kind: Deployment")
    assert cli.main(["import", str(tmp_path / "x.yaml")]) == Exit.USER
    assert capsys.readouterr().err == f"trainer: {tmp_path}/x.yaml: kind: 'Deployment': must be a TFJob\n"


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema"]) == Exit.OK
    printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(schema())
    assert "strategy" in printed["required"]


LOADED = """
import sys
from trainer.cli.main import main
main(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
"""


def test_check_imports_nothing_that_takes_long() -> None:
    done = trainer("check", str(JOBS[0]), code=LOADED)
    assert done.returncode == 0, done.stderr
    loaded = {name.partition(".")[0] for name in done.stderr.split()}
    assert "pydantic" in loaded
    assert not loaded & {"rich", "aiohttp", "asyncio", "numpy", "tensorflow", "keras", "prometheus_client"}
    assert not [name for name in done.stderr.split() if name.startswith("trainer.targets.") and name.count(".") > 2]


@pytest.mark.parametrize(("target", "other"), [("kubernetes", "compose"), ("compose", "kubernetes")])
def test_check_for_a_target_imports_that_target_and_not_what_talks_to_it(target: str, other: str) -> None:
    done = trainer("check", str(JOBS[0]), "--target", target, code=LOADED)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stderr.split())
    assert f"trainer.targets.{target}.target" in loaded
    assert not loaded & {f"trainer.targets.{other}", "rich", "aiohttp", "docker", "kubernetes", "tensorflow"}


@pytest.mark.parametrize("words", [["--watch"], ["--target", "compose"]], ids=" ".join)
def test_status_of_one_job_needs_a_job(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", *words]) == Exit.USER
    assert capsys.readouterr().err.startswith("trainer: JOB: is missing")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["status", "digits"],
            "--set: 'digits' is a job's name, and --set changes the values of a spec; give its file",
        ),
        (["logs", "digits"], "--set: 'digits' is a job's name, and --set changes the values of a spec; give its file"),
        (["status"], "JOB: is missing: --set changes the values of a spec"),
        (["result"], "SPEC: is missing: --set changes the values of a spec"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_set_without_a_spec_to_change_is_refused(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*words, "--set", "name=other"]) == Exit.USER
    assert capsys.readouterr().err == f"trainer: {message}\n"


@pytest.mark.parametrize("target", ["compose", "kubernetes"])
def test_set_changes_every_spec_that_render_is_given(
    spec: str, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("second.yaml").write_text(SPEC.replace("name: j", "name: k"))
    jobs = [spec, "second.yaml"] if target == "kubernetes" else [f"one={spec}", "two=second.yaml"]
    assert cli.main(["render", target, *jobs, "--set", "train.steps=617"]) == Exit.OK
    out = capsys.readouterr().out
    assert out.startswith(f"# Written by: trainer render {target} {' '.join(jobs)} --set train.steps=617\n")
    assert out.replace("\\", "").count('"steps":617') == 2
    # The header stays one line of comment, whatever a value holds.
    assert cli.main(["render", target, *jobs, "--set", "train.steps=617\n\n"]) == Exit.OK
    header, _, rest = capsys.readouterr().out.partition("\n")
    assert header.startswith("# Written by: ")
    assert rest.startswith("# ")


def write_result(model_dir: str) -> None:
    """Of a job of 617 steps."""
    Path(model_dir).mkdir(parents=True)
    training = Training(617, {}, None, None, {}, None, None)
    result.write(model_dir, Result("j", "one_device", training, 3.5, 1, [], {}, [], {}, {}, {}))


def test_result_is_that_of_the_model_dir_that_set_names(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_result("elsewhere")
    assert cli.main(["result", spec, "--set", "model_dir=elsewhere"]) == Exit.OK
    out = capsys.readouterr().out
    assert "elsewhere/.trainer/result.json" in out
    assert "617" in out


def test_result_of_a_model_dir(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    write_result("runs/other")
    assert cli.main(["result", "runs/other/"]) == Exit.OK
    assert "\nsteps        617\n" in capsys.readouterr().out
    assert cli.main(["result", "runs/other", "--set", "train.steps=1"]) == Exit.USER
    assert capsys.readouterr().err.startswith("trainer: --set: 'runs/other' is a folder, and --set changes the values")


def test_result_without_a_spec_outside_of_a_container_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(environment.JOB, raising=False)
    assert cli.main(["result"]) == Exit.USER
    assert capsys.readouterr().err == (
        "trainer: SPEC: is missing: give a job spec or a model_dir; TRAINER_JOB is set in a task's container only\n"
    )


@pytest.mark.parametrize("content", [None, "cut o", "[]", "{}"])
@pytest.mark.parametrize("named", [True, False], ids=["spec", "environment"])
def test_result_of_a_job_that_has_not_completed_is_refused(
    spec: str, content: str | None, named: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("runs/j").mkdir(parents=True)
    if content is not None:
        (layout.make_own("runs/j") / "result.json").write_text(content)
    monkeypatch.setenv(environment.JOB, load_file(spec).model_dump_json(exclude_defaults=True))
    assert cli.main(["result", spec] if named else ["result"]) == Exit.USER
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "trainer: model_dir: runs/j: it has no result.json that can be read: the job has not completed there; "
        "run or resume it, or choose the model_dir where it ran; `trainer status runs/j` shows one that runs\n"
    )


def test_local_gets_what_was_asked_for(spec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def run(spec: Any, **more: Any) -> int:
        asked.update(more, spec=spec)
        return 13

    monkeypatch.setattr(local, "run", run)
    assert cli.main(["local", spec, "--set", "train.steps=7", "--port", "4000", "--plain"]) == 13
    assert asked["spec"] == load_file(spec, ["train.steps=7"])
    assert (asked["base_port"], asked["plain"]) == (4000, True)
    cli.main(["local", spec])
    assert (asked["base_port"], asked["plain"]) == (None, False)


def fail_with(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> int:
    def load(*_: object) -> None:
        raise error

    monkeypatch.setattr(job, "load", load)
    return cli.main(["check", "x.yaml"])


def test_an_error_ends_with_its_code(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert fail_with(monkeypatch, TrainerError("the loss is nan at step 3", Exit.DIVERGED)) == 13
    assert capsys.readouterr().err == "trainer: the loss is nan at step 3\n"


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert fail_with(monkeypatch, KeyboardInterrupt()) == 143
    assert capsys.readouterr().err == ""


def test_a_bug_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("TRAINER_DEBUG", raising=False)
    line = "trainer: internal error: KeyError: 'a b'; please report it\n"
    assert fail_with(monkeypatch, KeyError("a b")) == Exit.BUG
    assert capsys.readouterr().err == line
    monkeypatch.setenv("TRAINER_DEBUG", "1")
    assert fail_with(monkeypatch, KeyError("a b")) == Exit.BUG
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    assert err.endswith(line)


def test_a_file_of_another_user_is_no_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert fail_with(monkeypatch, PermissionError(errno.EACCES, "Permission denied", "run/.lock")) == Exit.USER
    line = "trainer: run/.lock: Permission denied; run trainer as its owner, or make it accessible\n"
    assert capsys.readouterr().err == line
    assert fail_with(monkeypatch, PermissionError(errno.EPERM, "Operation not permitted")) == Exit.BUG


def test_a_reader_that_left_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "trainer", "schema"]
    with os.fdopen(writing, "wb") as gone:
        done = subprocess.run(command, stdout=gone, stderr=subprocess.PIPE, check=False, cwd=ROOT)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_task_without_its_environment() -> None:
    environ = {name: value for name, value in os.environ.items() if name not in ("TF_CONFIG", "TRAINER_JOB")}
    done = trainer("task", env=environ)
    assert done.returncode == Exit.USER
    assert done.stderr.startswith("trainer: TRAINER_JOB is not set")
