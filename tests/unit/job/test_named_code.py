"""The digest of a program's code changes with what its command runs, wherever that is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.job import named_code
from trainer.job.load import load_file
from trainer.job.spec import JobSpec

INHERITED = {"PATH": os.environ["PATH"]}


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder `src` beside the folder `jobs` of the spec, with a script and a module that it imports."""
    (jobs := tmp_path / "jobs").mkdir()
    (src := tmp_path / "src").mkdir()
    (src / "train.py").write_text("import helper\n")
    (src / "helper.py").write_text("x = 1\n")
    (jobs / "run.sh").write_text("set -e\ncd ../src\npython train.py\n")
    (jobs / "own.py").write_text("import beside\n")
    (jobs / "beside.py").write_text("x = 1\n")
    monkeypatch.chdir(jobs)
    return src


def load(**settings: Any) -> JobSpec:
    lines = ["name: j", "strategy: multi_worker_mirrored", *(f"{key}: {value}" for key, value in settings.items())]
    Path("job.yaml").write_text("\n".join(lines))
    return load_file("job.yaml", environ={})


def changes(spec: JobSpec, change: Callable[[], object], inherited: dict[str, str] = INHERITED) -> bool:
    """Whether a change makes a complete job run again."""
    before = named_code.digest(spec, inherited)
    assert before is not None
    assert named_code.digest(spec, inherited) == before
    change()
    return named_code.digest(spec, inherited) != before


@pytest.mark.parametrize(
    "settings",
    [
        {"program": "[python, ../src/train.py]"},
        {"program": "[python, SRC/train.py, --epochs=3]"},
        {"program": '[bash, -c, "cd ../src && python train.py"]'},
        {"program": '[sh, -c, "cd SRC; exec python -u train.py"]'},
        {"program": '[sh, -c, "cd .. && cd src && python -m train"]'},
        {"program": '[sh, -c, "python $CODE/train.py"]', "env": "{CODE: SRC}"},
        {"program": '[sh, -c, "python ${CODE}/train.py"]', "env": "{CODE: ../src}"},
        {"program": '[python, "$(CODE)/train.py"]', "env": "{CODE: SRC}"},
        {"program": "[bash, run.sh]"},
        {"program": "[python, train.py]", "working_dir": "SRC"},
        {"program": "[python, -m, train]", "env": "{PYTHONPATH: SRC}"},
        {"program": "[python, -u, -m, train]", "env": '{PYTHONPATH: "/nowhere:../src"}'},
        {"program": "[env, PYTHONPATH=../src, python, -m, train]"},
        {"program": """[python, -c, "import sys; sys.path.insert(0, '../src'); import train"]"""},
        {"program": "[python, own.py]", "tasks": "{worker: {replicas: 2, env: {PYTHONPATH: SRC}}}"},
        {"program": "[python, own.py]", "tasks": "{chief: 1, worker: {program: [python, ../src/train.py]}}"},
    ],
    ids=str,
)
@pytest.mark.parametrize("file", ["train.py", "helper.py", "settings.json"])
def test_code_elsewhere_that_has_changed_is_other_code(elsewhere: Path, settings: dict[str, str], file: str) -> None:
    spec = load(**{key: value.replace("SRC", str(elsewhere)) for key, value in settings.items()})
    assert changes(spec, lambda: (elsewhere / file).write_text("2"))


def test_the_variable_of_the_shell_counts_too(elsewhere: Path) -> None:
    inherited = {**INHERITED, "PYTHONPATH": str(elsewhere)}
    spec = load(program="[python, -m, train]")
    assert changes(spec, lambda: (elsewhere / "helper.py").write_text("2"), inherited)


def test_a_module_beside_the_script_counts_where_code_lists_the_script_alone(elsewhere: Path) -> None:
    """On this machine the script imports it."""
    spec = load(program="[python, own.py]", code="[own.py]")
    assert not changes(spec, lambda: Path("other.txt").write_text("2"))
    assert changes(spec, lambda: Path("beside.py").write_text("2"))


def test_settings_and_programs_in_other_folders_count(elsewhere: Path) -> None:
    (elsewhere / "large.bin").write_bytes(bytes(named_code.LARGEST_FILE + 1))
    (elsewhere / "conf").mkdir()
    (conf := elsewhere / "conf" / "big.yaml").write_text("a: 1")
    spec = load(program="[../src/large.bin, --config=../src/conf/big.yaml]")
    assert changes(spec, lambda: conf.write_text("a: 2"))
    assert changes(spec, lambda: os.utime(elsewhere / "large.bin", (1, 1)))


@pytest.mark.parametrize("words", ["--config-dir=../conf", "-c../conf/a.yaml", "'@../conf/a.yaml'"])
def test_settings_in_a_folder_and_in_an_option_count(elsewhere: Path, words: str) -> None:
    """Also if the folder has no scripts, as those that Hydra reads."""
    (conf := elsewhere.parent / "conf").mkdir()
    (conf / "a.yaml").write_text("a: 1")
    spec = load(program=f"[python, own.py, {words}]")
    assert changes(spec, lambda: (conf / "a.yaml").write_text("a: 2"))


def test_modules_beside_a_script_without_a_suffix_count(elsewhere: Path) -> None:
    (elsewhere / "train").write_text("#!/usr/bin/env python3\nimport helper\n")
    spec = load(program="[python, ../src/train]")
    assert changes(spec, lambda: (elsewhere / "helper.py").write_text("2"))


def test_folders_of_data_and_results_do_not_count(elsewhere: Path) -> None:
    (data := elsewhere.parent / "data").mkdir()
    model_dir = Path("runs/j")
    model_dir.mkdir(parents=True)
    spec = load(program=f"[python, own.py, --data={data}, --out=runs/j/out.py, --dir, runs/j]")
    assert not changes(spec, lambda: (data / "x.csv").write_text("1"))
    assert not changes(spec, lambda: (model_dir / "out.py").write_text("1"))


@pytest.mark.parametrize(
    "settings",
    [
        {"program": "[python, own.py]", "code": "[]"},
        {"program": "[python, -m, installed]"},
        {"program": '[sh, -c, "python -m installed.train"]'},
        {"program": "[python, -um, installed]"},
        {"program": "[python, -X, dev, -m, installed]"},
        {"program": "[console-script]"},
        {"program": "[../env/bin/console-script]"},
        {"program": "[make, train]"},
        {"program": "[SRC/make, train]"},
        {"program": """[sh, -c, 'cd "$(dirname "$0")/../src" && python train.py']"""},
    ],
    ids=str,
)
def test_code_that_is_not_found_is_unknown(elsewhere: Path, settings: dict[str, str]) -> None:
    (command := elsewhere / "console-script").write_text("#!/usr/bin/env python3\nimport installed\n")
    command.chmod(0o755)
    (make := elsewhere / "make").write_bytes(b"\x7fELF")
    make.chmod(0o755)
    (environment := elsewhere.parent / "env" / "bin").mkdir(parents=True)
    (environment.parent / "pyvenv.cfg").touch()
    shutil.copy(command, environment)
    inherited = {"PATH": f"{elsewhere}:{INHERITED['PATH']}"}
    spec = load(**{key: value.replace("SRC", str(elsewhere)) for key, value in settings.items()})
    assert named_code.digest(spec, inherited) is None


def test_python_s_own_modules_are_no_code(elsewhere: Path) -> None:
    assert named_code.digest(load(program="[python, -m, cProfile, own.py]"), INHERITED) is not None


def test_a_folder_that_is_too_large_is_unknown(elsewhere: Path) -> None:
    for i in range(17):
        (elsewhere / f"{i}.bin").write_bytes(bytes(1 << 20))
    assert named_code.digest(load(program="[python, ../src/train.py]"), INHERITED) is None
