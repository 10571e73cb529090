"""/metrics of real jobs, the alert rules and the dashboard of k8s/monitoring, as Prometheus itself reads them."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.local import specs
from tests.tools.harness import Job, get_json
from trainer.supervisor.metrics.prometheus import METRICS

MONITORING = Path(__file__).parents[2] / "k8s/monitoring"
pytestmark = pytest.mark.skipif(not shutil.which("promtool"), reason="apt install prometheus")
UNSEEN = {name for name in METRICS if name.startswith("gpu_")} | {"memory_limit_bytes"}
"""Not on this machine."""


def promtool(*words: str, text: str | None = None) -> None:
    ended = subprocess.run(["promtool", *words], cwd=MONITORING, input=text, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_alert_rules_are_valid_and_raise_what_they_should() -> None:
    promtool("check", "rules", "rules.yaml")
    promtool("test", "rules", "rules_test.yaml")
    tested = (MONITORING / "rules_test.yaml").read_text()
    (group,) = yaml.safe_load((MONITORING / "rules.yaml").read_text())["groups"]
    assert all(f'alertname="{rule["alert"]}"' in tested for rule in group["rules"])


def addresses(job: Job) -> dict[str, str]:
    """Of the control ports of all tasks, by the environments of their supervisors."""
    found = {}
    for name in job.status()["tasks"]:
        variables = Path(f"/proc/{job.pid(name, 'pid')}/environ").read_bytes().split(b"\0")
        config = json.loads(next(each for each in variables if each.startswith(b"TF_CONFIG=")).partition(b"=")[2])
        task_type, index = name.split(":")
        host, port = config["cluster"][task_type][int(index)].split(":")
        found[name] = f"{host}:{int(port) + 1000}"
    return found


def scrape(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as response:
        return str(response.read().decode())


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"

    def ask(self, path: str, **query: str) -> Any:
        answer = get_json(f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(query)}")
        assert answer["status"] == "success", answer
        return answer["data"]

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.ask("query", query=expression)["result"]
        return found

    def until(self, expression: str, seconds: float = 60) -> list[dict[str, Any]]:
        """The first answer that is not empty."""
        deadline = time.monotonic() + seconds
        while not (found := self.query(expression)):
            assert time.monotonic() < deadline, f"no value within {seconds:g} s: {expression}"
            time.sleep(0.2)
        return found


@contextlib.contextmanager
def prometheus(folder: Path, targets: list[str]) -> Iterator[Prometheus]:
    """One that scrapes these every second, and evaluates the alert rules."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(MONITORING / "rules.yaml")],
        "scrape_configs": [{"job_name": "local", "static_configs": [{"targets": targets}]}],
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    words = [f"--config.file={folder}/prometheus.yaml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "prometheus.log").open("w") as log:
        process = subprocess.Popen(["prometheus", *words, f"--web.listen-address=127.0.0.1:{port}"], stderr=log)
        try:
            deadline = time.monotonic() + 30
            while True:
                with (
                    contextlib.suppress(OSError),
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=5),
                ):
                    break
                assert process.poll() is None, (folder / "prometheus.log").read_text()
                assert time.monotonic() < deadline, (folder / "prometheus.log").read_text()
                time.sleep(0.1)
            yield Prometheus(port)
        finally:
            process.kill()
            process.wait()


def expressions() -> dict[str, str]:
    """Of the dashboard by the panel's title and letter, with what Grafana inserts."""
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    return {
        f"{panel['title']} {target['refId']}": target["expr"]
        .replace("$job_name", ".*")
        .replace("$__rate_interval", "10s")
        for panel in panels
        for target in panel["targets"]
    }


SHAPES = [
    specs.mirrored(steps=100_000, workload=specs.PACED),
    pytest.param(specs.parameter_server(steps=100_000, workload=specs.PACED), marks=pytest.mark.slow),
]


@pytest.mark.slow
@pytest.mark.parametrize("spec", SHAPES, ids=["mirrored", "parameter_server"])
def test_prometheus_scrapes_every_task_and_has_a_value_for_each_panel_and_rule(
    spec: dict[str, Any], tmp_path: Path
) -> None:
    with Job(tmp_path, spec) as job:
        job.until("a checkpoint", lambda s: s.get("last_checkpoint") and s.get("seconds_writing") is not None)
        where = addresses(job)
        families, seen = dict[str, str](), set[tuple[str, str]]()
        for name, address in where.items():
            text = scrape(address)
            promtool("check", "metrics", text=text)
            for family in text_string_to_metric_families(text):
                for sample in family.samples:
                    families[sample.name.removeprefix("trainer_")] = family.documentation
                    seen.add((sample.name, sample.labels["task"]))
                    assert sample.labels["job_name"] == "digits"
            assert ("trainer_cpu_seconds_total", name) in seen
        assert families == {n: family.help for n, family in METRICS.items() if n not in UNSEEN}
        workers = {name for name in where if name.startswith("worker")}
        assert {task for name, task in seen if name == "trainer_step_seconds_total"} >= workers
        with prometheus(tmp_path, list(where.values())) as server:
            server.until(f"sum(up) == {len(where)}")
            for panel, expression in expressions().items():
                if not any(f"trainer_{name}" in expression for name in UNSEEN):
                    assert server.until(expression), panel
                server.query(expression)
            # Each second of a worker is one of its parts, but for what it does between its first steps.
            parts = "sum by (task) (rate(trainer_step_seconds_total{task=~'worker.*'}[10s]))"
            for found in server.until(f"{parts} > 0.5"):
                assert float(found["value"][1]) < 1.5
            up = {sample["metric"]["task"]: sample["value"][1] for sample in server.query("trainer_task_up")}
            assert up == dict.fromkeys(where, "1")
            job.signal("worker:1")
            server.until("sum(trainer_restarts_total{cause='killed'}) == 1")
            groups = server.ask("rules")["groups"]
            assert {rule["health"] for group in groups for rule in group["rules"]} == {"ok"}
