"""The README's `trainer local` commands, word for word, with fewer steps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.test_readme import ROOT, commands


@pytest.mark.parametrize("words", [w for w in commands("trainer") if w[1] == "local"], ids=" ".join)
def test_the_job_runs(tmp_path: Path, words: list[str]) -> None:
    fewer = ["--set", "train.steps=20", "--set", f"model_dir={tmp_path}/run"]
    ended = subprocess.run(
        [sys.executable, "-m", *words, *fewer], cwd=ROOT, capture_output=True, text=True, timeout=200
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert result.get("steps") == (None if result["strategy"] == "graph" else 20)
