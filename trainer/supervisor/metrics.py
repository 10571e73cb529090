"""/metrics: the figures of /status as gauges for Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric

from trainer.protocol.reports import Identity

GAUGES = {
    "step": "Last training step",
    "loss": "Loss of the last call",
    "accuracy": "Batch accuracy of the last call",
    "examples_per_second": "Training rate",
    "generation": "Generation of the cluster",
    "restarts": "Restarts of this task's child alone, without a new generation, since its supervisor started",
    "last_checkpoint": "Step of the last complete checkpoint",
}


def scrape(identity: Identity, status: Mapping[str, object]) -> bytes:
    """The gauges as text; `status` is the document that /status answers."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Collector(identity, status))
    return generate_latest(registry)


class _Collector:
    def __init__(self, identity: Identity, status: Mapping[str, object]) -> None:
        self._labels = {"job": identity.job, "task": identity.task}
        self._status = status

    def collect(self) -> Iterable[Metric]:
        for name, help_text in GAUGES.items():
            gauge = GaugeMetricFamily(f"trainer_{name}", help_text, labels=list(self._labels))
            if isinstance(value := self._status.get(name), (int, float)):
                gauge.add_metric(list(self._labels.values()), value)
                yield gauge
