"""The code of docs/python.md and of the README, in the cells of a real notebook: its kernel runs an event loop."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.local.specs import PACED, mirrored
from tests.tools.documents import ROOT, blocks
from trainer.model_dir import layout
from trainer.targets.local import output

PACKAGES = ROOT / ".venv-peers" / "notebook"
STEPS = 400
"""Of the job in docs/python.md, which sets them."""

RUN = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
try:
    NotebookClient(notebook, timeout=240).execute()
finally:
    nbformat.write(notebook, sys.argv[1])
"""
NO_CLUSTER = """
import os
os.environ["KUBECONFIG"] = "none"
try:
    trainer.jobs("kubernetes")
except trainer.TrainerError as error:
    print("code", int(error.code))
"""
INTERRUPTED = """
import signal, threading

left, shown = trainer.load("left.yaml").submit("local"), threading.Event()

class Noted(trainer.Run):
    def statuses(self, timeout=None):
        for found in super().statuses(timeout):
            yield found  # it is shown before the next one is asked for
            if found.phase == "running" and found.job:
                shown.set()

left = Noted(**vars(left))

def interrupt():  # as Jupyter does: the kernel and all in its process group
    shown.wait(120)
    os.killpg(os.getpgid(0), signal.SIGINT)

threading.Thread(target=interrupt).start()
trainer.watch(left)
print("the table has ended, the job is", left.status().phase)
"""


def execute(folder: Path, cells: list[str]) -> list[dict[str, str]]:
    """Runs a notebook; returns the last content of each cell's output by type of content."""
    code: list[dict[str, Any]] = [
        {"cell_type": "code", "id": str(i), "source": text, "metadata": {}, "outputs": [], "execution_count": None}
        for i, text in enumerate(cells)
    ]
    path = folder / "notebook.ipynb"
    path.write_text(json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    environ = {
        **os.environ, "PYTHONPATH": str(PACKAGES), "JUPYTER_PLATFORM_DIRS": "1",
        "IPYTHONDIR": str(folder / "ipython"), "HOME": str(folder), "XDG_STATE_HOME": "",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", RUN, str(path)], cwd=folder, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    found = []
    for cell in json.loads(path.read_text())["cells"]:
        shown: dict[str, str] = {}
        for each in cell["outputs"]:
            shown["stream"] = shown.get("stream", "") + "".join(each.get("text", []))
            shown |= {kind: "".join(text) for kind, text in each.get("data", {}).items()}
        found.append(shown)
    return found


@pytest.mark.part("docs")
@pytest.mark.skipif(not PACKAGES.exists(), reason="make notebook-setup installs ipykernel and nbclient")
def test_the_page_and_the_readme_are_true_in_a_notebook(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    paced = mirrored(steps=100_000, workers=1, workload=PACED, model_dir=str(tmp_path / "runs/left"))
    (tmp_path / "left.yaml").write_text(yaml.safe_dump(paced))
    page = blocks("python", "docs/python.md")
    (readme,) = [each for each in blocks("python", "README.md") if "import trainer" in each]
    loaded, watched, waited, failed, attached, again, refused, interrupted = execute(
        tmp_path, [*page, readme, NO_CLUSTER, INTERRUPTED]
    )
    assert "'type': 'worker', 'index': 1" in loaded["stream"]
    assert re.search(r"^<pre .*digits-ps\nphase +done\nstatus +succeeded\n", watched["text/html"], re.DOTALL)
    assert re.match(rf"0\.\d+ {STEPS}\nworker:1    \| worker:1 of digits-ps has started", waited["stream"])
    assert re.match(r"19 digits-ps: exit code 19: .*deadlines\.job", failed["stream"])
    assert attached["stream"] == "local done\n"
    result = json.loads(layout.result(tmp_path / "runs/digits-ps").read_text())
    assert again["stream"].startswith(f"{result['test_accuracy']} worker:1    | ")
    assert refused["stream"] == "code 16\n"
    assert "digits  multi_worker_mirrored  running" in re.sub("<[^>]*>", "", interrupted["text/html"])
    assert interrupted["stream"] == "the table has ended, the job is running\n"
    # The kernel has ended, and its job with it, as the page says.
    deadline = time.monotonic() + 60
    while output.written(str(tmp_path / "runs/left")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert "stopped by a signal" in (layout.logs(tmp_path / "runs/left") / "output.log").read_text()
