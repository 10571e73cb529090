"""/metrics with a real connection on loopback."""

import asyncio

from prometheus_client.parser import text_string_to_metric_families

from tests.unit.supervisor.ports import get, serving


def test_metrics_are_gauges_with_job_and_task_of_the_numbers_in_status() -> None:
    async def run() -> str:
        async with serving() as (session, port):
            return (await get(session, port, "/metrics"))[1]

    families = list(text_string_to_metric_families(asyncio.run(run())))
    found = {
        sample.name: (family.type, sample.labels, sample.value) for family in families for sample in family.samples
    }
    labels = {"job": "j", "task": "worker:1"}
    assert found == {
        "trainer_step": ("gauge", labels, 30),
        "trainer_loss": ("gauge", labels, 0.5),
        "trainer_generation": ("gauge", labels, 2),
    }
    assert all(family.documentation for family in families)
