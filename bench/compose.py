"""`make bench-compose`: sizes of the images; start, first step and end of a job across containers.

Times are the engine's own: StartedAt and FinishedAt of containers, and the stamps of their logs.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.compose.project import CLIENT, Project  # noqa: E402

IMAGES = ("trainer:cpu", "trainer:cuda", "trainer:tensorboard")
TASKS = {"parameter_server": {"ps": 1, "worker": 3}, "multi_worker_mirrored": {"worker": 2}}
REPETITIONS = 3


def main() -> None:
    rows = [f"| {name} | {size(name)} | |" for name in IMAGES]
    for strategy, tasks in TASKS.items():
        runs = [run(strategy, tasks) for _ in range(REPETITIONS)]
        for figure in runs[0]:
            values = [each[figure] for each in runs]
            rows.append(
                f"| {strategy}: {figure} | {statistics.median(values):.2f} | {min(values):.2f} to {max(values):.2f} |"
            )
    print("\n".join(["| | median | min to max |", "|---|---|---|", *rows]))


def size(name: str) -> str:
    found = [image for image in CLIENT.images.list() if name in image.tags]
    return f"{found[0].attrs['Size'] / 1e6:,.0f} MB" if found else "not built"


def run(strategy: str, tasks: dict[str, int]) -> dict[str, float]:
    spec = {
        "name": "bench",
        "strategy": strategy,
        "workload": "mnist",
        "tasks": tasks,
        "train": {"steps": 60, "batch_size": 50},
    }
    with tempfile.TemporaryDirectory() as folder:
        asked = datetime.now(timezone.utc)
        with Project(Path(folder), spec) as project:
            if project.wait(300) != 0:
                raise SystemExit(project.output)
            names = [*(f"{t}:{i}" for t, n in tasks.items() for i in range(n)), project.chief]
            containers = {name: project.container(name) for name in names}
            chief = containers.pop(project.chief)
            started, ended = (time_of(chief.attrs["State"][key]) for key in ("StartedAt", "FinishedAt"))
            others = [time_of(container.attrs["State"]["FinishedAt"]) for container in containers.values()]
            first_line = time_of(chief.logs(timestamps=True).decode().split()[0])
            first_step = started.timestamp() + project.result()["seconds_to_first_step"]
    return {
        "`docker compose up` to the first step, s": first_step - asked.timestamp(),
        "start of the chief's container to its first line, s": (first_line - started).total_seconds(),
        "exit of the chief's container to that of the last task's, s": (max(others) - ended).total_seconds(),
    }


def time_of(stamp: str) -> datetime:
    """Of RFC 3339 with nanoseconds."""
    return datetime.strptime(stamp[:26].ljust(26, "0"), "%Y-%m-%dT%H:%M:%S.%f").replace(tzinfo=timezone.utc)


if __name__ == "__main__":
    main()
