"""The programs of examples/programs are those of users who have never heard of trainer."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parents[2] / "examples" / "programs"


@pytest.mark.parametrize("program", sorted(PROGRAMS.glob("*.py")), ids=lambda path: path.name)
def test_they_import_nothing_of_ours(program: Path) -> None:
    nodes = list(ast.walk(ast.parse(program.read_text())))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert imported
    assert not {name for name in imported if name.split(".")[0] == "trainer"}
    assert "TRAINER_" not in program.read_text()


def test_one_needs_no_tensorflow() -> None:
    config = {"cluster": {"chief": ["a:1"], "worker": ["b:1", "b:2"]}, "task": {"type": "worker", "index": 1}}
    # -S: without the packages of this environment.
    command = [sys.executable, "-S", str(PROGRAMS / "print_config.py"), "--epochs=3"]
    printed = subprocess.run(command, env={"TF_CONFIG": json.dumps(config)}, capture_output=True, text=True, check=True)
    first, chief, workers, task = printed.stdout.splitlines()
    assert json.loads(first.removeprefix("TF_CONFIG ")) == config
    assert (chief, workers) == ("chief a:1", "worker b:1 b:2")
    assert task == "this is worker 1, with the arguments ['--epochs=3']"
