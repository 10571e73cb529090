"""`make bench-kind`: start, first step, rate and end of a job across pods, compared with the same job run locally.

Times are the cluster's own, in whole seconds: startedAt and finishedAt of containers, completionTime of Jobs.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import uuid
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.kind.cluster import Namespace, kubectl, render  # noqa: E402
from tests.tools.harness import Job  # noqa: E402

TASK = {"replicas": 1, "cpu": 1}
SPECS: dict[str, dict[str, Any]] = {
    "multi_worker_mirrored": {"tasks": {"chief": TASK, "worker": TASK}},
    "parameter_server": {"tasks": {"chief": TASK, "ps": TASK, "worker": {**TASK, "replicas": 2}}},
}
REPETITIONS = 3


def main() -> None:
    rows = []
    for strategy, more in SPECS.items():
        spec = {"name": "bench", "strategy": strategy, "workload": "mnist", **more}
        spec["train"] = {"steps": 150, "batch_size": 64}
        runs = [{**in_pods(spec), **beside(spec)} for _ in range(REPETITIONS)]
        for run in runs:
            run["examples/s in pods, of local"] = run["examples/s in pods"] / run["examples/s, local"]
        for figure in runs[0]:
            values = [each[figure] for each in runs]
            median = statistics.median(values)
            rows.append(f"| {strategy}: {figure} | {median:,.2f} | {min(values):,.2f} to {max(values):,.2f} |")
    print("\n".join(["| | median | min to max |", "|---|---|---|", *rows]))


def in_pods(spec: dict[str, Any]) -> dict[str, float]:
    space = Namespace(f"bench-{uuid.uuid4().hex[:6]}")
    kubectl("create", "namespace", space.name)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "job.yaml"
            path.write_text(yaml.safe_dump(spec))
            manifests = render(path)
        asked = datetime.now(timezone.utc)
        job = space.apply(manifests)
        job.wait()
        job.wait_for_the_others()
        result = json.loads(job.file(".trainer/result.json"))
        chief = job.pods("chief")[-1]["status"]["containerStatuses"][0]["state"]["terminated"]
        ends = [time_of(each["status"]["completionTime"]) for each in space.get("jobs")]
    finally:
        kubectl("delete", "namespace", space.name)
    first_step = time_of(chief["startedAt"]).timestamp() + result["seconds_to_first_step"]
    return {
        "`kubectl apply` to the first step, s": first_step - asked.timestamp(),
        "exit of the chief's container to all Jobs Complete, s": (
            max(ends) - time_of(chief["finishedAt"])
        ).total_seconds(),
        "examples/s in pods": result["examples_per_second"],
    }


def beside(spec: dict[str, Any]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, Job(Path(folder), spec) as job:
        if job.wait(300) != 0:
            raise SystemExit(job.output)
        return {"examples/s, local": job.result()["examples_per_second"]}


def time_of(stamp: str) -> datetime:
    return datetime.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=timezone.utc)


if __name__ == "__main__":
    main()
