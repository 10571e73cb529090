"""A TFJob that is imported runs as it is: its words, its variables and its types of tasks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from trainer.job.errors import Exit

WRITE = 'printf "%s\\n" "$GREETING" "$TF_CONFIG" > "$FOLDER/$ROLE.new"; mv "$FOLDER/$ROLE.new" "$FOLDER/$(FILE)"'
WAIT = 'until [ -e "$FOLDER/is worker.txt" ] && [ -e "$FOLDER/is ps.txt" ]; do sleep 0.1; done; '


def replica(folder: Path, role: str, command: list[str], *args: str) -> dict[str, Any]:
    env = {"FOLDER": str(folder), "ROLE": role, "FILE": "is $(ROLE).txt", "GREETING": "$(FILE) & $$(ROLE) ü $(NONE)"}
    container = {
        "name": "tensorflow",
        "image": "registry.example/any:1",
        "command": command,
        "args": [*args],
        "env": [{"name": name, "value": value} for name, value in env.items()],
    }
    return {"restartPolicy": "ExitCode", "template": {"spec": {"containers": [container]}}}


def test_its_programs_run_and_end_with_the_chief(tmp_path: Path) -> None:
    types = {
        "Master": replica(tmp_path, "chief", ["sh", "-c", f"{WAIT}\n{WRITE}"]),
        "worker": replica(tmp_path, "worker", ["sh"], "-c", f"{WRITE}; exec sleep 600"),
        "PS": replica(tmp_path, "ps", ["sh"], "-c", f"{WRITE}; exec sleep 600"),
    }
    job = {"apiVersion": "kubeflow.org/v1", "kind": "TFJob", "metadata": {"name": "imported"}}
    tfjob, spec = tmp_path / "tfjob.yaml", tmp_path / "job.yaml"
    tfjob.write_text(yaml.safe_dump({**job, "spec": {"tfReplicaSpecs": types}}))
    trainer, environ = [sys.executable, "-m", "trainer"], {**os.environ, "PYTHONUTF8": "1"}
    with spec.open("w") as file:
        subprocess.run([*trainer, "import", str(tfjob)], stdout=file, check=True, timeout=60)
    local = [*trainer, "local", str(spec), "--plain", "--set", f"model_dir={tmp_path}/run"]
    ended = subprocess.run(local, capture_output=True, text=True, timeout=120, env=environ)
    assert ended.returncode == Exit.OK, ended.stdout + ended.stderr
    for role in ("chief", "worker", "ps"):
        greeting, tf_config = (tmp_path / f"is {role}.txt").read_text().splitlines()
        assert greeting == f"is {role}.txt & $(ROLE) ü $(NONE)"
        config = json.loads(tf_config)
        assert config["task"] == {"type": role, "index": 0}
        assert {name: len(addresses) for name, addresses in config["cluster"].items()} == dict.fromkeys(
            ("chief", "worker", "ps"), 1
        )
