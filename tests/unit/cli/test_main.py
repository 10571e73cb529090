"""The `trainer` command, without running tasks."""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer import __version__
from trainer.api import job
from trainer.cli import main as cli
from trainer.job import environment
from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit, TrainerError
from trainer.job.load import load_file
from trainer.job.schema import schema
from trainer.model_dir import result
from trainer.model_dir.result import Result, Training
from trainer.targets.local import run as local

ROOT = Path(__file__).parents[3]
JOBS = sorted((ROOT / "examples").glob("*.yaml"))

SPEC = """
name: j
strategy: multi_worker_mirrored
tasks: {chief: {cpu: 1.5, memory: 2Gi}, worker: {replicas: 3}, evaluator: 1}
train: {global_batch_size: 64, learning_rate: 1.0e-3, learning_rate_scaling: sqrt}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TRAINER_SET", raising=False)
    Path("job.yaml").write_text(SPEC)
    return "job.yaml"


def trainer(*words: str, code: str | None = None, **more: Any) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, or code that calls it."""
    command = [sys.executable, *(["-c", code] if code else ["-m", "trainer"]), *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, **more)


def usage_error(*words: str) -> int:
    with pytest.raises(SystemExit) as caught:
        cli.main(words)
    assert isinstance(caught.value.code, int)
    return caught.value.code


# Help and usage. --------------------------------------------------------------------------------------


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


# check and schema. ------------------------------------------------------------------------------------


def test_check_prints_everything_derived_from_a_spec(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", spec, "--set", "train.steps=600"]) == Exit.OK
    lines = capsys.readouterr().out.splitlines()
    assert lines[:17] == [
        "task         address            cpu  memory  gpus",
        "chief:0      j-chief-0.j:2222   1.5  2Gi     -",
        "worker:0     j-worker-0.j:2222  -    -       -",
        "worker:1     j-worker-1.j:2222  -    -       -",
        "worker:2     j-worker-2.j:2222  -    -       -",
        "evaluator:0  -                  -    -       -",
        "",
        "job                j",
        "strategy           multi_worker_mirrored",
        "workload           mnist",
        "replicas in sync   4",
        "global batch       64",
        "per-replica batch  16",
        "steps              600",
        "learning rate      0.002 (0.001, sqrt in 4 replicas)",
        "model_dir          runs/j",
        "",
    ]
    assert lines[17] == "TF_CONFIG of each task:"
    assert lines[18:] == [task.tf_config() for task in tasks_of(load_file(spec))]


def test_check_prints_where_data_are(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "records").mkdir()
    path = tmp_path / "job.yaml"
    data = "{train: {path: records}, val: {kubernetes: {claim: imagenet, sub_path: val}}, far: {path: 'gs://b/c'}}"
    path.write_text(f"name: j\nstrategy: one_device\ndata: {data}\n")
    assert cli.main(["check", str(path)]) == Exit.OK
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("data.")]
    assert rows == [
        f"data.train         local, compose: {tmp_path}/records; kubernetes: none",
        "data.val           local, compose: none; kubernetes: claim imagenet, folder val",
        "data.far           local, compose: gs://b/c; kubernetes: gs://b/c",
    ]
    path.write_text("name: j\nstrategy: one_device\ndata: {train: {kubernetes: {nfs: {server: s, path: /x}}}}\n")
    assert cli.main(["check", str(path)]) == Exit.OK
    assert "\nPod Security       baseline, for data.train.kubernetes: nfs\n" in capsys.readouterr().out
    path.write_text(f"name: j\nstrategy: one_device\ndata: {data}\n")
    (tmp_path / "records").rmdir()
    assert cli.main(["check", str(path)]) == Exit.USER
    assert f"data.train.path: '{tmp_path}/records': no such folder on this machine" in capsys.readouterr().err


def test_what_may_surprise_on_a_target_is_a_warning_there_only(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "j.yaml").write_text(
        "{name: j, strategy: multi_worker_mirrored, program: [python3], tasks: {worker: 2}}"
    )
    for words in (["check", "--target", "kubernetes"], ["render", "kubernetes"]):
        assert cli.main([*words, str(tmp_path / "j.yaml")]) == Exit.OK
        assert capsys.readouterr().err.startswith(
            "trainer: warning: kubernetes.volume.access: ReadWriteOnce: every pod "
        )
    for words in (["check"], ["check", "--target", "compose"]):
        assert cli.main([*words, str(tmp_path / "j.yaml")]) == Exit.OK
        assert capsys.readouterr().err == ""


def test_check_prints_what_is_code_and_what_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: j\nstrategy: one_device\nworkload: m.py\ncode: .\n")
    (tmp_path / "m.py").write_text("def model(): pass\nDATASET = 'digits'\n")
    for number in range(13):
        (tmp_path / f"{number:02}.log").touch()
    assert cli.main(["check", str(path)]) == Exit.OK
    out = capsys.readouterr().out
    assert f"\ncode               1 file, 37 bytes, of {tmp_path}\n" in out
    assert f"\nnot code           {', '.join(f'{number:02}.log' for number in range(12))} and 2 more\n" in out


def test_check_allows_a_program_in_a_folder_that_no_container_gets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On local it runs where it is, also beside data."""
    path = tmp_path / "job.yaml"
    path.write_text("name: j\nstrategy: multi_worker_mirrored\nprogram: [python3, x.py]\ntasks: {worker: 2}\n")
    (tmp_path / "x.py").touch()
    with (tmp_path / "images.bin").open("wb") as file:
        file.truncate(1 << 34)
    assert cli.main(["check", str(path)]) == Exit.OK
    assert re.search(rf"\ncode +{tmp_path}, on local alone: code: 2 files of ", capsys.readouterr().out)
    assert cli.main(["check", "--target", "compose", str(path)]) == Exit.USER
    assert "images.bin (17,179,869,184)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "known"),
    [
        ("", False),
        ("tasks: {worker: {replicas: 2, program: [python, train.py]}}", True),
        ("tasks: {chief: 1, worker: {replicas: 2, program: [python, train.py]}}", False),
        ("working_dir: /in/the/image", True),
        ("tasks: {worker: {replicas: 2, program: [python, /in/the/image.py]}}", True),
        ("code: []\nworking_dir: /in/the/image", True),
        ("env: {NAME: train}\nprogram: [python, $(NAME).py]", True),
    ],
)
def test_check_names_a_script_that_is_not_in_the_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str, known: bool
) -> None:
    path = tmp_path / "job.yaml"
    own = "name: j\nstrategy: multi_worker_mirrored\n"
    own += "" if "\nprogram" in more else "program: [python, trian.py]\n"
    own += "" if "tasks" in more else "tasks: {worker: 2}\n"
    path.write_text(own + more)
    (tmp_path / "train.py").touch()
    assert cli.main(["check", str(path)]) == (Exit.OK if known else Exit.USER)
    said = f"program: 'trian.py': no such file in {tmp_path}; did you mean train.py?"
    assert (said in capsys.readouterr().err) is not known
    assert cli.main(["render", "kubernetes", str(path)]) == (Exit.OK if known else Exit.USER)
    assert (said in capsys.readouterr().err) is not known


def test_check_prints_epochs_where_steps_depend_on_the_data(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", spec, "--set", "train.epochs=3", "--set", "train.learning_rate_scaling=linear"]) == 0
    out = capsys.readouterr().out
    assert "\nepochs             3\n" in out
    assert "\nlearning rate      0.004 (0.001, linear in 4 replicas)\n" in out


@pytest.mark.parametrize("job", JOBS, ids=lambda path: path.stem)
def test_the_jobs_we_ship_are_sound(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(job)]) == Exit.OK
    out = capsys.readouterr().out
    assert re.search(rf"^job +{job.stem}$", out, re.MULTILINE)


@pytest.mark.parametrize("job", sorted((ROOT / "examples").glob("*/*.yaml")), ids=lambda path: path.stem)
def test_the_examples_to_copy_run_on_all_targets_unchanged(
    job: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the folders that earlier steps of their pages make."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs/records").mkdir(parents=True)
    (tmp_path / "runs/first/export").mkdir(parents=True)
    (tmp_path / "runs/first/export/model.keras").touch()
    path = job.relative_to(ROOT)
    for words in (["check"], ["render", "compose"], ["render", "kubernetes"]):
        assert cli.main([*words, str(path)]) == Exit.OK, capsys.readouterr().err
    # Where the volume is for one node, all pods of a program run there.
    of_volume = "trainer: warning: kubernetes.volume.access: "
    assert [line for line in capsys.readouterr().err.splitlines() if not line.startswith(of_volume)] == []


def test_check_describes_a_graph_job(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(ROOT / "examples/sum.yaml"), "--set", "settings.x=3"]) == Exit.OK
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["settings.x", "3"] in rows
    assert ["job", "name", "/job:local"] in rows
    assert not [row for row in rows if row[:1] in (["learning"], ["global"])]


def test_check_names_an_api_other_than_the_loop(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(ROOT / "examples/digits-fit.yaml")]) == Exit.OK
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["api", "keras_fit"] in rows
    assert not [row for row in rows if row[:1] == ["learning"]], "compile sets it"


def test_import_prints_a_spec_on_stdout_and_notes_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["import", str(ROOT / "tests/unit/tfjob/tfjobs/dist-mnist.yaml")]) == Exit.OK
    out, err = capsys.readouterr()
    (tmp_path / "imported.yaml").write_text(out)
    assert load_file(tmp_path / "imported.yaml").strategy == "parameter_server"
    assert err
    assert all(line.startswith("trainer: ") for line in err.splitlines())


def test_import_of_what_is_no_tfjob_is_a_users_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.yaml").write_text("kind: Deployment")
    assert cli.main(["import", str(tmp_path / "x.yaml")]) == Exit.USER
    assert capsys.readouterr().err == f"trainer: {tmp_path}/x.yaml: kind: 'Deployment': must be a TFJob\n"


def test_every_problem_is_reported_at_once(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(spec).write_text(SPEC.replace("name: j", "name: J\nmodel: x") + "max_restarts: -1\n")
    assert cli.main(["check", spec, "--set", "train.steps=0", "--set", "nonsense"]) == Exit.USER
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert all(line.startswith("trainer: job.yaml: ") for line in lines)
    for part in ("name: 'J'", "model: 'x': unknown key", "max_restarts: -1", "train.steps: 0", "--set 'nonsense'"):
        assert sum(part in line for line in lines) == 1, part
    assert len(lines) == 5


def test_a_workload_that_is_not_there(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("check", "local"):
        assert cli.main([command, spec, "--set", "workload=mine.py"]) == Exit.USER
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("trainer: workload: mine.py: no such file")
        assert not Path("runs").exists()


def test_a_module_that_is_not_installed_is_reported_before_anything_starts(
    spec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text("import nowhere\nDATASET = 'digits'\ndef model(): pass\n")
    words = [spec, "--set", f"workload={tmp_path}/mine.py"]
    for command in ("check", "local"):
        assert cli.main([command, *words]) == Exit.USER
        assert "mine.py:1: import nowhere: no such module; pip install it, or put" in capsys.readouterr().err
    # What an image has is not known here.
    assert cli.main(["check", *words, "--set", "image=mine:1"]) == Exit.OK
    assert cli.main(["check", *words, "--target", "kubernetes"]) == Exit.OK


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


def test_check_refuses_for_a_target_what_that_target_would_refuse(
    spec: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["check", spec, "--set", "model_dir=/srv/runs"]
    assert cli.main(words) == Exit.OK
    assert cli.main([*words, "--target", "kubernetes"]) == Exit.USER
    assert "kubernetes.volume says where" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["submit", "--dry-run"], "--dry-run"),
        (["delete", "--namespace", "x"], "--namespace"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_compose_refuses_what_only_kubernetes_has(
    spec: str, words: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([words[0], "--target", "compose", spec, *words[1:]]) == Exit.USER
    assert (
        capsys.readouterr().err
        == f"trainer: {option}: is not an option of --target compose; it is for --target kubernetes\n"
    )


@pytest.mark.parametrize("words", [["--watch"], ["--target", "compose"]], ids=" ".join)
def test_status_of_one_job_needs_a_job(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", *words]) == Exit.USER
    assert capsys.readouterr().err.startswith("trainer: JOB: is missing")


# --set, wherever a spec is read. ----------------------------------------------------------------------


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
    assert "elsewhere/result.json" in out
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
        Path("runs/j/result.json").write_text(content)
    monkeypatch.setenv(environment.JOB, load_file(spec).model_dump_json(exclude_defaults=True))
    assert cli.main(["result", spec] if named else ["result"]) == Exit.USER
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "trainer: model_dir: runs/j: it has no result.json that can be read: the job has not completed there; "
        "run or resume it, or choose the model_dir where it ran; `trainer status runs/j` shows one that runs\n"
    )


# local. -----------------------------------------------------------------------------------------------


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


# How it ends when something is wrong. -----------------------------------------------------------------


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


def test_check_of_many_tasks_does_not_print_all_their_tf_configs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(ROOT / "examples/mnist-ps.yaml"), "--set", "tasks.worker=1000"]) == Exit.OK
    printed = capsys.readouterr().out
    assert printed.count('"cluster"') == 3  # chief, worker, ps
    assert "worker:999 " in printed
