"""Run by the Python of .venv-mlflow: prints all runs of an experiment, as MLflow's own client reads them."""

import json
import sys

from mlflow.tracking import MlflowClient

client = MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name(sys.argv[2])
found = []
for run in client.search_runs([experiment.experiment_id]) if experiment else []:
    history = {
        name: [[each.step, each.value, each.timestamp] for each in client.get_metric_history(run.info.run_id, name)]
        for name in run.data.metrics
    }
    own = {"id": run.info.run_id, "status": run.info.status, "ended": run.info.end_time, "name": run.info.run_name}
    found.append({**own, "params": run.data.params, "tags": run.data.tags, "metrics": history})
print(json.dumps(found))
