"""The picture of the live table in the README, from a real run in which a worker is killed.

python -m tests.local.picture       `make picture`: writes docs/table.svg
"""

from __future__ import annotations

import io
import json
import tempfile
import time
from pathlib import Path

import yaml
from rich.console import Console

from tests.tools.harness import Job
from trainer.job import load
from trainer.job.cluster import tasks_of
from trainer.job.names import task_name
from trainer.model_dir import state as job_state
from trainer.protocol.status import read
from trainer.targets.show import table

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "table.svg"
EXAMPLE = ROOT / "examples" / "digits-ps.yaml"
COLUMNS = 84


def main() -> None:
    text = yaml.safe_load(EXAMPLE.read_text())
    spec = load.build(text)
    names = [task.name for task in tasks_of(spec)]
    victim = task_name("worker", 1)
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Job(Path(folder), text) as job:
        job.until_step(400)
        job.signal(victim)
        job.until(f"{victim} is back", lambda s: s["tasks"][victim].get("restarts"))
        status = job.until_step(1200)
        port = job_state.load(str(job.model_dir), 0.0).control_port
        now = time.monotonic()
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(table.render(spec.name, spec.strategy, names, read(json.dumps(status)), now - begun, port=port))
    PICTURE.write_text(console.export_svg(title=f"trainer local {EXAMPLE.relative_to(ROOT)}", unique_id="table"))


if __name__ == "__main__":
    main()
