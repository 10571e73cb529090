"""The words of a program, its folder, and errors before it starts."""

import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.job import code, program
from trainer.job.errors import UserError
from trainer.job.load import build, load_file
from trainer.job.spec import JobSpec

SPEC = "name: j\nstrategy: multi_worker_mirrored\nprogram: [python, train.py]\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print(1)\n")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_text("print(2)\n")
    return tmp_path


def load(project: Path, *overrides: str) -> JobSpec:
    (project / "job.yaml").write_text(SPEC)
    return load_file(project / "job.yaml", overrides, environ={})


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("--dir=$(A)/x$(B)", "--dir=1/x2 2"),
        ("$(NOTHING) $A ${A} $ $(", "$(NOTHING) $A ${A} $ $("),
        ("$$(A) $$$(A) $$", "$(A) $1 $"),
        ("$(A$(B))", "$(A2 2)"),
    ],
)
def test_variables_are_expanded_as_kubernetes_does(text: str, expanded: str) -> None:
    assert program.expand(text, {"A": "1", "B": "2 2"}) == expanded


def test_a_variable_may_refer_to_those_before_it() -> None:
    env = {"A": "1", "B": "$(A)2", "C": "$(B)3 $(OUTSIDE)", "D": "$(E)", "E": "5", "F": "$$(A)"}
    raw: dict[str, Any] = {"name": "j", "strategy": "multi_worker_mirrored", "program": ["x"], "env": env}
    spec = build({**raw, "tasks": {"worker": {"env": {"G": "$(C)!", "A": "$(ROLE)"}}}})
    expected = {"A": "w", "B": "w2", "C": "w23 there", "D": "$(E)", "E": "5", "F": "$(A)", "G": "w23 there!"}
    assert program.variables(spec, "worker", {"OUTSIDE": "there", "ROLE": "w"}) == expected


def test_a_program_starts_in_the_folder_of_its_code(project: Path) -> None:
    assert program.folder(load(project)) == project
    assert program.folder(load(project, f"code={project}/src")) == project / "src"
    assert program.folder(load(project, "working_dir=src")) == project / "src"
    assert program.folder(load(project, "working_dir=/app", "code=[]")) == Path("/app")
    assert program.folder(load(project, "code=[]")) == Path.cwd()
    assert sorted(code.files(load(project))) == ["run.sh", "src/main.py", "train.py"]


def test_python_is_the_interpreter_of_the_spec(project: Path) -> None:
    spec, environ = load(project, f"python={sys.executable}"), {"PATH": "/usr/bin:/bin"}
    assert program.command(spec, ["python", "train.py"], environ) == [sys.executable, "train.py"]
    assert program.command(spec, ["python3", "-c", "$(PATH)"], environ)[2] == "/usr/bin:/bin"
    assert program.command(spec, ["sh", "-c", "python x"], environ)[1:] == ["-c", "python x"]
    assert program.interpreter(spec, ["sh"], environ) == sys.executable


def test_a_python_of_another_version_is_not_that_of_the_spec(project: Path) -> None:
    (project / "python3.7").write_text("#!/bin/sh\n")
    (project / "python3.7").chmod(0o755)
    spec, environ = load(project, f"python={sys.executable}"), {"PATH": f"{project}:/bin"}
    assert program.command(spec, ["python3.7", "train.py"], environ)[0] == f"{project}/python3.7"
    assert program.interpreter(spec, ["python3.7"], environ) == f"{project}/python3.7"
    with pytest.raises(UserError, match=r"program: 'python3\.99': no such command in PATH"):
        program.command(spec, ["python3.99", "train.py"], environ)


@pytest.mark.parametrize(
    ("words", "sets", "line"),
    [
        (["pithon", "train.py"], [], "program: 'pithon': no such command in PATH (/usr/bin:/bin)"),
        (["python3 train.py"], [], "in PATH (/usr/bin:/bin); write its words apart: [python3, train.py]"),
        (["./src"], [], "program: './src': is a folder; name a file in it"),
        (["python3", "trian.py"], [], "program: 'trian.py': no such file in {project}; did you mean train.py?"),
        (["./start"], [], "program: './start': no such file in {project}"),
        (["/no/start"], [], "program: '/no/start': no such file"),
        (["./run.sh"], [], "program: './run.sh': is not executable: run `chmod +x {project}/run.sh`"),
        (["sh"], ["working_dir=lib"], "working_dir: '{project}/lib': no such folder"),
    ],
)
def test_what_cannot_be_started_is_named(project: Path, words: list[str], sets: list[str], line: str) -> None:
    with pytest.raises(UserError, match=re.escape(line.format(project=project))):
        program.command(load(project, *sets), words, {"PATH": "/usr/bin:/bin"})


def test_variables_that_there_are_not_are_found() -> None:
    words = ["$(A)", "$(B)/x$(C)", "$$(D)", "$(B)", "$E"]
    assert program.unknown(words, {"A": "1"}) == ["B", "C"]


def test_a_program_as_one_text_is_one_problem(project: Path) -> None:
    with pytest.raises(UserError) as caught:
        load(project, "program=python train.py")
    (problem,) = caught.value.problems
    assert problem.endswith("program: 'python train.py': must be a list of words: [python, train.py]")


@pytest.mark.parametrize(
    ("setting", "path"),
    [
        ("workload=digits", "workload"), ("train.steps=5", "train"), ("api=keras_fit", "api"),
        ("warm_standby=false", "warm_standby"), ("tasks.worker={cpu_devices: 2}", "tasks.worker.cpu_devices"),
        ("strategy=graph", "strategy"),
    ],
)  # fmt: skip
def test_settings_of_the_training_are_refused(project: Path, setting: str, path: str) -> None:
    with pytest.raises(UserError, match=rf"{path}: ") as caught:
        load(project, setting)
    assert len(caught.value.problems) == 1


def test_settings_of_programs_need_one(tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: j\nstrategy: multi_worker_mirrored\n")
    sets = ["python=/x", "working_dir=x", "resume=none", "success=all_workers", "tasks.worker={program: [x]}"]
    with pytest.raises(UserError) as caught:
        load_file(tmp_path / "job.yaml", sets, environ={})
    wanted = ["python", "working_dir", "resume", "success", "tasks.worker.program"]
    assert [problem.split(": ")[1] for problem in caught.value.problems] == wanted


def test_variables_that_trainer_sets_are_refused_everywhere(project: Path) -> None:
    sets = ["env={TF_CONFIG: x}", "tasks.worker={env: {TRAINER_X: y}}", "kubernetes.env={TASK_INDEX: z}"]
    with pytest.raises(UserError) as caught:
        load(project, *sets)
    names = [problem.split(": ")[1] for problem in caught.value.problems]
    assert sorted(names) == ["env.TF_CONFIG", "kubernetes.env.TASK_INDEX", "tasks.worker.env.TRAINER_X"]
    load(project, "env={TRAINER_DATA_DIR: /x}")


def test_keras_trains_with_tensorflow_and_a_program_with_what_it_likes(project: Path) -> None:
    load(project, "env={KERAS_BACKEND: jax}")
    raw: dict[str, Any] = {"name": "j", "strategy": "one_device", "workload": "digits"}
    build({**raw, "env": {"KERAS_BACKEND": "tensorflow"}})
    with pytest.raises(UserError) as caught:
        build({**raw, "env": {"KERAS_BACKEND": "jax"}, "tasks": {"worker": {"env": {"KERAS_BACKEND": "torch"}}}})
    rule = "trainer trains with Keras' backend tensorflow; remove it"
    assert str(caught.value).splitlines() == [
        f"spec: env.KERAS_BACKEND: 'jax': {rule}",
        f"spec: tasks.worker.env.KERAS_BACKEND: 'torch': {rule}",
    ]
    with pytest.raises(UserError) as caught:
        build({**raw, "kubernetes": {"env": {"KERAS_BACKEND": {"config_map": "keras", "key": "backend"}}}})
    shown = '{"config_map": "keras", "key": "backend"}'
    assert str(caught.value) == f"spec: kubernetes.env.KERAS_BACKEND: {shown}: {rule}"


def test_the_environment_of_a_type_replaces_the_job_s_by_name(project: Path) -> None:
    spec = load(project, "env={A: '1', B: '$(HOME)/b'}", "tasks.worker={env: {A: '2', C: '$(X)'}}")
    environ: dict[str, Any] = {"HOME": "/tmp"}
    assert program.variables(spec, "worker", environ) == {"A": "2", "B": "/tmp/b", "C": "$(X)"}
    assert os.environ.get("A") is None
