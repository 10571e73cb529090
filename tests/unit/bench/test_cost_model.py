"""The model beside simulations that send each message, and beside what was measured."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bench import cost_model, growth, run
from bench.cost_model import Cost, Network


def simulated_ring(workers: int, size: float, network: Network) -> tuple[float, float, list[list[float]]]:
    """Bytes that a worker sends, the seconds until the last has all sums, and these; message by message."""
    parts = [[float(10**worker * (part + 1)) for part in range(workers)] for worker in range(workers)]
    ready, sent = [0.0] * workers, 0.0
    for message in range(2 * (workers - 1)):
        before, times = [list(each) for each in parts], list(ready)
        for worker in range(workers):
            part, to = (worker - message) % workers, (worker + 1) % workers
            adds = message < workers - 1
            if not adds:
                part = (worker + 1 - (message - workers + 1)) % workers
            parts[to][part] = parts[to][part] + before[worker][part] if adds else before[worker][part]
            ready[to] = max(ready[to], times[worker] + network.latency + size / workers / network.bandwidth)
        sent += size / workers
    return sent, max(ready), parts


@pytest.mark.parametrize(("workers", "size"), [(2, 6.65e6), (3, 100.0), (8, 102e6)])
def test_a_ring_costs_what_its_messages_do(workers: int, size: float) -> None:
    network = Network(bandwidth=3e8, latency=2e-4)
    sent, seconds, parts = simulated_ring(workers, size, network)
    sums = [sum(10**worker for worker in range(workers)) * (part + 1) for part in range(workers)]
    assert parts == [sums] * workers, "the simulation adds up"
    assert cost_model.ring(workers, size, network) == pytest.approx((sent, seconds))


@pytest.mark.parametrize(("nodes", "devices"), [(1, 4), (5, 1), (3, 4)])
def test_a_hierarchy_is_a_ring_within_each_node_and_one_among_them(nodes: int, devices: int) -> None:
    network, within = Network(1e9, 1e-4), Network(2e10, 1e-5)
    among, inside = simulated_ring(nodes, 5e7, network), simulated_ring(devices, 5e7, within)
    found = cost_model.hierarchical(nodes, devices, 5e7, network, within)
    assert found == pytest.approx((among[0], among[1] + inside[1]))


@pytest.mark.parametrize(("workers", "servers", "limit"), [(4, 1, 4.0), (4, 2, 2.0), (9, 3, 3.0), (4, 4, 2.0)])
def test_a_step_with_ps_takes_as_long_as_the_busiest_connection(workers: int, servers: int, limit: float) -> None:
    """In units of the gradients' bytes: a ps receives its part of all workers', a worker sends and receives its own."""
    found = cost_model.parameter_server(workers, servers, 1e8, Network(1e8, 0.0))
    assert found.seconds == pytest.approx(limit)


def test_a_round_costs_a_part_of_an_exchange() -> None:
    assert Cost(60.0, 1.5).every(30) == (2.0, 0.05)


KINDS = [path.stem.partition("-")[2] for path in sorted(run.RESULTS.glob("growth-*.json"))]


def measured(kind: str) -> list[dict[str, float]]:
    rows: list[dict[str, float]] = json.loads((run.RESULTS / f"growth-{kind}.json").read_text())["figures"]
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_the_measured_bytes_are_those_of_a_ring(kind: str) -> None:
    rows = measured(kind)
    assert [row["workers"] for row in rows] == [1, 2, 4, 8]
    for row in rows[1:]:
        model = cost_model.ring(int(row["workers"]), growth.MODEL_BYTES, Network(1e9, 1e-4))
        assert row["bytes"] == pytest.approx(model.bytes, rel=0.03)


@pytest.mark.parametrize("kind", KINDS)
def test_one_price_of_a_byte_explains_the_measured_cpu_time(kind: str) -> None:
    rows = measured(kind)
    price = cost_model.per_byte(rows)
    for row in rows[1:]:
        assert rows[0]["core_milliseconds"] + price * row["bytes"] / 1e6 == pytest.approx(
            row["core_milliseconds"], rel=0.05
        )


def network(step: dict[str, float]) -> dict[str, Any]:
    """Results of 128 examples in a step of so many seconds, by bandwidth."""
    return {mbit: {"examples_per_second": [0.5, 128 / seconds, 1e6]} for mbit, seconds in step.items()}


def test_the_steps_of_slow_networks_follow_from_those_of_the_fastest() -> None:
    figures = {
        "trainer": network({"100": 0.85, "8000": 0.06}),
        "trainer, weights averaged every 10 steps": network({"100": 0.12, "1000": 0.05}),
        "unknown": network({"100": 1.0}),
    }
    size = 1e7  # 80 Mbit: 0.8 s at 100 Mbit/s, 0.08 s at 1 Gbit/s, 0.01 s at 8
    found = cost_model.check(figures, size, 128)
    assert [(name, mbit) for name, mbit, _, _ in found] == [(name, "100") for name in list(figures)[:2]]
    assert [(measured, model) for *_, measured, model in found] == [
        pytest.approx((850, 60 + 790)),
        pytest.approx((120, 50 + 72)),
    ]


def test_the_page_has_the_table_of_examples() -> None:
    assert "\n".join(cost_model.table()) in (run.ROOT / "docs" / "communication.md").read_text()
