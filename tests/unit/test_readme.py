"""The README is a promise: its commands run, its YAML is valid, its tables agree with the code."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from trainer.cli import main as cli
from trainer.job import load
from trainer.job.errors import Exit
from trainer.job.kubernetes import Kubernetes, Volume
from trainer.job.spec import Communication, Deadlines, JobSpec, Train

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands(program: str) -> list[list[str]]:
    lines = [line.removeprefix("$ ") for block in blocks("console") for line in block.splitlines()]
    return [words for line in lines if (words := shlex.split(line, comments=True)) and words[0] == program]


QUICK = [w for w in commands("trainer") if w[1] in ("check", "schema", "import")]


@pytest.mark.parametrize("words", QUICK, ids=shlex.join)
def test_quick_commands_succeed(words: list[str]) -> None:
    words = words[: words.index(">")] if ">" in words else words
    ended = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout


def in_tables() -> list[list[str]]:
    """`trainer local` commands in cells of tables; what they print is tested elsewhere (tests/local)."""
    return [shlex.split(text) for text in re.findall(r"`(trainer local [^`]*)`", README)]


@pytest.mark.parametrize("words", in_tables(), ids=shlex.join)
def test_commands_in_tables_are_of_valid_jobs(words: list[str]) -> None:
    assert cli.main(["check", *words[2:]]) == Exit.OK


@pytest.mark.parametrize("words", commands("make"), ids=shlex.join)
def test_make_targets_exist_and_are_described(words: list[str]) -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(rf"^{words[1]}:.*## ", makefile, re.MULTILINE)


@pytest.mark.parametrize("block", blocks("yaml"))
def test_specs_are_valid_and_those_of_the_files_they_show(block: str) -> None:
    shown = yaml.safe_load(block)
    file = ROOT / "examples" / f"{shown['name']}.yaml"
    assert load.build(shown) == load.build(yaml.safe_load(file.read_text()))


EXAMPLES = sorted(path for path in (ROOT / "examples").iterdir() if path.suffix in (".yaml", ".py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_begins_with_a_line_on_what_it_shows(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert re.match(r"# [A-Z].*[.:?]$" if path.suffix == ".yaml" else r'"""[A-Z].*[.:]', first), first


def test_every_example_is_valid() -> None:
    for path in (ROOT / "examples").glob("*.yaml"):
        assert load.load_file(path).name == path.stem


def test_exit_codes_are_those_of_the_code() -> None:
    shown = dict(re.findall(r"^\| (\d+) \| (.*) \|$", README, re.MULTILINE))
    assert shown == {str(int(code)): code.meaning for code in Exit}


MODELS = (JobSpec, Train, Communication, Deadlines, Kubernetes, Volume)


@pytest.mark.parametrize("name", [name for model in MODELS for name in model.model_fields])
def test_every_key_of_the_spec_is_mentioned(name: str) -> None:
    assert re.search(rf"\b{name}\b", README)
