"""scripts/stages.sh, with a Makefile of the test's own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

from tests.tools.documents import ROOT
from tests.tools.harness import alive
from tests.tools.rotation import OTHERS_EVERY

MAKEFILE = """
quick:
\t@echo quick ran
slow:
\t@until [ -f go ]; do sleep 0.05; done; echo slow ran
go:
\t@touch go
bad:
\t@echo the reason >&2; exit 3
lasting:
\t@echo $$$$ > pid; exec sleep 600
begun:
\t@until [ -f pid ]; do sleep 0.05; done
docs:
\t@echo docs ran
"""


def run(folder: Path, *targets: str) -> tuple[int, str]:
    """Exit code and output."""
    (folder / "Makefile").write_text(MAKEFILE)
    (folder / ".venv/bin").mkdir(parents=True, exist_ok=True)
    python = folder / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\ncd {ROOT}; exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if name not in ("STAGES", "TRAINER_SLOW", "MAKEFLAGS")}
    ended = subprocess.run(
        [ROOT / "scripts/stages.sh", *targets],
        cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60,
    )  # fmt: skip
    return ended.returncode, ended.stdout


def table(output: str) -> list[str]:
    return re.findall(r"^ *\(?\d+\)? (.*)", output.partition("Seconds of each stage:")[2], re.MULTILINE)


def test_a_target_begins_beside_the_next_ones_and_is_waited_for(tmp_path: Path) -> None:
    code, output = run(tmp_path, "+slow", "go", "slow", "quick")
    assert code == 0, output
    assert table(output) == ["make go", "make slow, beside others", "wait for make slow", "make quick"]
    assert output.index("wait for make slow") < output.index("slow ran") < output.index("quick ran")


def test_one_that_nothing_waits_for_is_waited_for_at_the_end(tmp_path: Path) -> None:
    code, output = run(tmp_path, "+bad", "quick")
    assert code != 0
    assert "the reason" in output


def test_what_fails_beside_others_ends_all_with_its_output(tmp_path: Path) -> None:
    code, output = run(tmp_path, "+lasting", "+bad", "begun", "bad", "quick")
    assert code != 0
    assert "the reason" in output
    assert table(output)[-1].startswith("wait for make bad: failed with exit ")
    assert "quick ran" not in output
    pid, deadline = int((tmp_path / "pid").read_text()), time.monotonic() + 10
    while alive(pid):
        assert time.monotonic() < deadline, "what still runs beside is ended"
        time.sleep(0.05)


def test_a_part_of_the_tree_runs_or_is_left_out_with_the_reason(tmp_path: Path) -> None:
    code, output = run(tmp_path, "docs")
    assert code == 0
    if "docs ran" in output:
        assert re.search(r"^make docs runs: ", output, re.MULTILINE)
    else:
        assert re.search(rf"^ +- make docs: left out: .* every {OTHERS_EVERY} commits is in \d", output, re.MULTILINE)
