"""MLflow's REST API, as much as one run needs (mlflow.org/docs/latest/rest-api.html).

MLflow's own client would bring dozens of packages into every image.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple
from urllib.parse import urlencode
from zlib import crc32

from trainer import __version__
from trainer.job.tracking_rules import MLFLOW_LOGIN
from trainer.model_dir.files import json_object
from trainer.protocol.types import plain_text
from trainer.supervisor.outside.outbound import Answer, Outbound

BATCH = 500
"""Values of metrics in one request. MLflow takes 1,000, and 1 MB."""
MOST_PARAMS = 100
"""Parameters in one request."""
SECONDS = 10.0
"""For an answer."""
_LONGEST_NAME = 250
LONGEST_VALUE = 500
"""Of a parameter; servers before 2.9 take no more (mlflow/utils/validation.py)."""
_LONGEST_TAG = 5000
_UNFIT = re.compile(r"[^\w.\- /]")
"""What a name may not have: mlflow/utils/validation.py. A colon only newer servers take."""

_NOT_MLFLOW = "its answer is none of MLflow's; tracking.mlflow is the server's address with its path"

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
    steps: dict[str, int] = field(default_factory=dict)
    """By metric: the step of its newest value."""
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


class MLflow:
    """One server."""

    def __init__(self, server: Outbound, environ: Mapping[str, str]) -> None:
        self._server = server
        self._headers = {
            "Content-Type": "application/json; charset=utf-8",
            "User-Agent": f"trainer/{__version__}",
            **_login(environ),
        }

    async def experiment(self, name: str) -> str:
        """The id of the experiment of that name, which is made if there is none."""
        why: Refused | None = None
        for _ in range(2):  # another job may make it at the same time
            with contextlib.suppress(Refused):  # there is none
                found = await self._call("GET", f"experiments/get-by-name?{urlencode({'experiment_name': name})}", b"")
                if isinstance(known := found.get("experiment"), dict):
                    return str(known.get("experiment_id"))
            try:
                return str((await self._post("experiments/create", {"name": name})).get("experiment_id"))
            except Refused as error:
                why = error
        raise why or Unavailable(_NOT_MLFLOW)

    async def find(self, experiment_id: str, tag: str, value: str) -> Run | None:
        """The run with this tag."""
        wanted = f"tags.`{tag}` = '{value}'"
        asked = {"experiment_ids": [experiment_id], "filter": wanted, "max_results": 1}
        runs = (await self._post("runs/search", asked)).get("runs")
        return _run(runs[0], experiment_id) if isinstance(runs, list) and runs else None

    async def create(self, experiment_id: str, name: str, started: float, tags: Mapping[str, str]) -> Run:
        asked = {
            "experiment_id": experiment_id,
            "run_name": name,
            "start_time": _milliseconds(started),
            "tags": _pairs(tags, _LONGEST_TAG),
        }
        return _run((await self._post("runs/create", asked)).get("run"), experiment_id)

    async def log(
        self,
        run: Run,
        points: Iterable[Point] = (),
        params: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> None:
        """Records at most BATCH values."""
        metrics = [
            # As protobuf writes and reads NaN and infinity in JSON: as text.
            {"key": p.name, "value": _number(p.value), "timestamp": _milliseconds(p.time), "step": p.step}
            for p in points
        ]
        given = {
            "metrics": metrics,
            "params": _pairs(params or {}, LONGEST_VALUE),
            "tags": _pairs(tags or {}, _LONGEST_TAG),
        }
        await self._post("runs/log-batch", {"run_id": run.run_id, **given})

    async def set_status(self, run: Run, status: Status, ended: float | None = None) -> None:
        end = {} if ended is None else {"end_time": _milliseconds(ended)}
        await self._post("runs/update", {"run_id": run.run_id, "status": status, **end})

    async def _post(self, path: str, body: Mapping[str, object]) -> dict[str, object]:
        return await self._call(
            "POST", path, json.dumps(body, ensure_ascii=False, allow_nan=False).encode(errors="replace")
        )

    async def _call(self, method: str, path: str, body: bytes) -> dict[str, object]:
        try:
            answer = await self._server.call(method, f"/api/2.0/mlflow/{path}", body, self._headers, SECONDS)
        except ConnectionError as error:
            raise Unavailable(str(error)) from None
        if answer.is_good and answer.body[:1] == b"{":
            return json_object(answer.body)
        raise self._complaint(answer)

    def _complaint(self, answer: Answer) -> Unavailable | Refused:
        found = json_object(answer.body)
        said = f"{self._server.host} answers {answer.status}"
        if answer.status in (401, 403):
            user, password, token = MLFLOW_LOGIN
            return Unavailable(f"{said}{_words(answer)}; its login is {user} and {password}, or {token}, under secrets")
        if "error_code" not in found:
            return Unavailable(f"{said}; {_NOT_MLFLOW}" if answer.status < 500 else said)
        said = f"{said}: {' '.join(plain_text(str(found.get('message'))).split())[:300]}"
        return Unavailable(said) if answer.is_passing else Refused(said)


def _words(answer: Answer) -> str:
    """The text of a refusal, if it is one line."""
    text = answer.body.decode(errors="replace").strip()
    return f": {text}" if 0 < len(text) <= 100 and text.isprintable() and "<" not in text else ""


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


def _login(environ: Mapping[str, str]) -> dict[str, str]:
    user, password, token = (environ.get(name, "") for name in MLFLOW_LOGIN)
    if user:
        return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}
    return {"Authorization": f"Bearer {token}"} if token else {}


def _run(found: object, experiment_id: str) -> Run:
    """Raises Unavailable if that is no run."""
    parts = found if isinstance(found, dict) else {}
    info, data = parts.get("info"), parts.get("data")
    if not isinstance(info, dict) or not isinstance(run_id := info.get("run_id"), str):
        raise Unavailable(_NOT_MLFLOW)
    data = data if isinstance(data, dict) else {}
    return Run(
        experiment_id,
        run_id,
        str(info.get("status")),
        {key: int(str(step)) if str(step).isdecimal() else 0 for key, step in _entries(data.get("metrics"), "step")},
        {key: str(value) for key, value in _entries(data.get("params"), "value")},
        {key: str(value) for key, value in _entries(data.get("tags"), "value")},
    )


def _entries(rows: object, value: str) -> Iterable[tuple[str, object]]:
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict):
            yield str(row.get("key")), row.get(value)


def _pairs(values: Mapping[str, str], longest: int) -> list[dict[str, str]]:
    return [{"key": key, "value": value[:longest]} for key, value in values.items()]


def _number(value: float) -> float | str:
    if value != value:
        return "NaN"
    return value if abs(value) != float("inf") else "Infinity" if value > 0 else "-Infinity"


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
