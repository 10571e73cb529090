"""Which variables `trainer track` gets, and which of them no task gets."""

from __future__ import annotations

from trainer.job.spec import JobSpec, Outside

MLFLOW_LOGIN = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN")
_WAY_THERE = ("HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "ALL_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE")


def is_for_tracker(variable: str) -> bool:
    """Whether `trainer track` gets a variable of `env` or `secrets`: MLflow's own, and those of proxies and
    certificates."""
    return variable.startswith("MLFLOW_") or variable.upper() in _WAY_THERE


def secrets_of_tasks(spec: JobSpec) -> dict[str, Outside]:
    """The secrets that the tasks get: without MLflow's login, if only `trainer track` needs it."""
    return {name: each for name, each in spec.secrets.items() if spec.tracking is None or name not in MLFLOW_LOGIN}


def secrets_of_tracker(spec: JobSpec) -> dict[str, Outside]:
    return {name: each for name, each in spec.secrets.items() if is_for_tracker(name)}
