"""Run by the Python of .venv-mlflow: prints all runs of an experiment, as MLflow's own client reads them."""

import json
import sys
import tempfile
from pathlib import Path

from mlflow.tracking import MlflowClient

client = MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name(sys.argv[2])
found = []


def artifacts(run_id: str) -> dict[str, str]:
    """The texts of a run's artifacts; of other files the length."""
    with tempfile.TemporaryDirectory() as folder:
        top = Path(client.download_artifacts(run_id, "", folder))
        files = {str(path.relative_to(top)): path.read_bytes() for path in top.rglob("*") if path.is_file()}
    return {name: body.decode() if body.isascii() else f"{len(body)} bytes" for name, body in files.items()}


def models(run_id: str) -> dict[str, list[str]]:
    """The versions of registered models that were made from a run."""
    versions = client.search_model_versions(f"run_id = '{run_id}'")
    return {name: [each.version for each in versions if each.name == name] for name in {v.name for v in versions}}


for run in client.search_runs([experiment.experiment_id]) if experiment else []:
    history = {
        name: [[each.step, each.value, each.timestamp] for each in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }
    own = {"id": run.info.run_id, "status": run.info.status, "ended": run.info.end_time, "name": run.info.run_name}
    own |= {"artifacts": artifacts(run.info.run_id), "models": models(run.info.run_id)}
    found.append({**own, "params": run.data.params, "tags": run.data.tags, "metrics": history})
print(json.dumps(found))
