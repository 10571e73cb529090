"""One MLflow server, as much of it as one run needs. The only module that imports mlflow."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit
from zlib import crc32

from trainer.job.tracker import MLFLOW_LOGIN
from trainer.protocol.types import plain_text

# MLflow's client reads them, some when it is imported. Nothing of a job goes anywhere but to the server that is named.
# The tracker itself asks again.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT", "true")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException, RestException
from mlflow.tracking import MlflowClient

BATCH = 500
"""Values of metrics in one request. MLflow takes 1,000, and 1 MB."""
MOST_PARAMS = 100
"""Parameters in one request."""
MOST_SECONDS = 10
"""For an answer."""
UPLOAD_SECONDS = 600
"""For the answer to an uploaded file, which a server may pass on to a store."""
LONGEST_VALUE = 500
"""Characters of a parameter; servers before 2.9 take no more (mlflow/utils/validation.py)."""
_LONGEST_NAME = 250
_LONGEST_TAG = 5000
_UNFIT = re.compile(r"[^\w.\- /]")
"""What a name may not have: mlflow/utils/validation.py. Only newer servers take a colon."""
_TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
_NOT_MLFLOW = "its answer is none of MLflow's; tracking.mlflow is the server's address with its path"
_REASONS = {
    "refused": "refused the connection",
    "CERTIFICATE_VERIFY_FAILED": "has a certificate that is not trusted; name the right ones in SSL_CERT_FILE",
    "ProxyError": "cannot be reached through the proxy",
    "resolve": "is no known host",
    "timeout": "does not answer",
    "timed out": "does not answer",
}
"""By a word in the client's error why a server cannot be reached."""

Status = Literal["RUNNING", "FINISHED", "FAILED", "KILLED"]


class Unavailable(Exception):
    """The server does not answer as an MLflow server does: it is tried again later. The reason is one line."""


class Refused(Exception):
    """The server has understood the request and will never accept it. The reason is one line."""


class Point(NamedTuple):
    """One value of a metric."""

    name: str
    value: float
    step: int
    time: float
    """Seconds since the epoch."""


@dataclass
class Run:
    """A run as the server knows it."""

    experiment_id: str
    run_id: str
    status: str = "RUNNING"
    artifacts: str = ""
    """The address of its artifacts."""
    steps: dict[str, int] = field(default_factory=dict)
    """By metric: the step of its newest value."""
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


class MLflow:
    """One server. Every method raises Unavailable or Refused."""

    def __init__(self, address: str, seconds: float) -> None:
        """
        Args:
            seconds: to wait for an answer, at most MOST_SECONDS.
        """
        parts = urlsplit(address)
        self.host = f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)
        self._seconds = str(max(1, min(MOST_SECONDS, int(seconds))))
        if certificates := os.environ.get("SSL_CERT_FILE"):
            os.environ.setdefault("MLFLOW_TRACKING_SERVER_CERT_PATH", certificates)
        self._client = MlflowClient(address, address)

    def experiment(self, name: str) -> str:
        """The id of the experiment of that name, which is made if there is none."""
        with self._asked():
            known = self._client.get_experiment_by_name(name)
            if known is not None:
                return str(known.experiment_id)
        try:
            with self._asked():
                return str(self._client.create_experiment(name))
        except Refused:  # another job may have made it meanwhile
            with self._asked():
                if (known := self._client.get_experiment_by_name(name)) is None:
                    raise
                return str(known.experiment_id)

    def find(self, experiment_id: str, tag: str, value: str) -> Run | None:
        """The run with this tag."""
        with self._asked():
            runs = self._client.search_runs([experiment_id], f"tags.`{tag}` = '{value}'", max_results=1)
        return _run(runs[0]) if runs else None

    def create(self, experiment_id: str, name: str, started: float, tags: Mapping[str, str]) -> Run:
        with self._asked():
            return _run(self._client.create_run(experiment_id, _milliseconds(started), dict(tags), name))

    def log(
        self,
        run: Run,
        points: Iterable[Point] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Records at most BATCH values and MOST_PARAMS parameters."""
        metrics = [Metric(p.name, p.value, _milliseconds(p.time), p.step) for p in points]
        settings = [Param(key, value[:LONGEST_VALUE]) for key, value in (params or {}).items()]
        words = [RunTag(key, value[:_LONGEST_TAG]) for key, value in (tags or {}).items()]
        with self._asked():
            self._client.log_batch(run.run_id, metrics, settings, words)
        run.tags |= tags or {}

    def set_status(self, run: Run, status: Status, ended: float | None = None) -> None:
        with self._asked():
            if ended is None:
                self._client.update_run(run.run_id, status)
            else:
                self._client.set_terminated(run.run_id, status, _milliseconds(ended))
        run.status = status

    def upload(self, run: Run, path: Path, folder: str = "") -> None:
        """Keeps a file as an artifact of the run."""
        with self._asked(UPLOAD_SECONDS):
            self._client.log_artifact(run.run_id, str(path), folder or None)

    def register(self, run: Run, folder: str, name: str) -> str:
        """Makes a folder of the run's artifacts a version of a registered model; returns the number of the version."""
        with contextlib.suppress(Refused), self._asked():  # there is one
            self._client.create_registered_model(name)
        with self._asked():
            found = self._client.create_model_version(
                name, f"{run.artifacts}/{folder}", run.run_id, await_creation_for=None
            )
        return str(found.version)

    @contextlib.contextmanager
    def _asked(self, seconds: float | None = None) -> Iterator[None]:
        """Limits the time for the answer, and turns what the client raises into one line."""
        os.environ[_TIMEOUT] = self._seconds if seconds is None else str(int(seconds))
        try:
            yield
        except RestException as error:
            raise self._complaint(error) from None
        except (MlflowException, OSError, ValueError) as error:  # those of requests are OSErrors
            raise self._unreachable(str(error)) from None
        except ImportError as error:
            raise Refused(f"the store of its artifacts needs the package {error.name}, which is missing") from None

    def _complaint(self, error: RestException) -> Unavailable | Refused:
        status = int(error.get_http_status_code())
        if status in (401, 403):
            return self._unreachable(f"error code {status}")
        text = f"{self.host} answers {status}: {' '.join(plain_text(str(error)).split())[:300]}"
        return Unavailable(text) if status >= 500 or status in (408, 425, 429) else Refused(text)

    def _unreachable(self, text: str) -> Unavailable:
        """What the client raises if there is no answer of MLflow's."""
        status = re.search(r"error code (\d+)|too many (\d+) error responses", text)
        code = int(status[1] or status[2]) if status else 0
        if code in (401, 403):
            user, password, token = MLFLOW_LOGIN
            login = f"its login is {user} and {password}, or {token}, under secrets"
            return Unavailable(f"{self.host} answers {code}; {login}")
        if code >= 500 or code in (408, 425, 429):
            return Unavailable(f"{self.host} answers {code}")
        why = next((why for word, why in _REASONS.items() if word in text and not code), "")
        return Unavailable(f"{self.host} {why or (f'answers {code}; {_NOT_MLFLOW}' if code else f': {_NOT_MLFLOW}')}")


class Names:
    """Names of metrics and parameters as MLflow takes them. One that is the same then as another gets a suffix."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, name: str) -> str:
        if name not in self._known:
            fit = _fit(name)
            if fit in self._taken:
                fit = f"{fit[: _LONGEST_NAME - 9]}-{crc32(name.encode(errors='replace')):08x}"
            self._known[name] = fit
            self._taken.add(fit)
        return self._known[name]


def _fit(name: str) -> str:
    # MLflow refuses what would be another path as a file: an empty part, . and .., and a slash at either end.
    parts = [part for part in _UNFIT.sub("_", name)[:_LONGEST_NAME].split("/") if part not in ("", ".", "..")]
    return "/".join(parts) or "_"


def _run(found: object) -> Run:
    """What the client has returned, which has no types."""
    info, data = getattr(found, "info"), getattr(found, "data")  # noqa: B009
    return Run(
        str(info.experiment_id),
        str(info.run_id),
        str(info.status),
        str(info.artifact_uri),
        {each.key: int(each.step) for each in data.to_proto().metrics},
        dict(data.params),
        dict(data.tags),
    )


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
