"""What an exchange of gradients costs, by arithmetic: bytes and seconds of a step. docs/communication.md explains it.

    python -m bench.cost_model      the table of examples in that page

Nothing in trainer uses it. It leaves out what computing hides of an exchange, so it gives the most that a step takes,
and it takes each machine to have a network connection of its own, on which both directions are as fast.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bench import growth, run


class Network(NamedTuple):
    bandwidth: float
    """Bytes per second of a machine's connection, each way."""
    latency: float
    """Seconds from the first byte of a message until it is received: half a round trip, and gRPC's own time."""

    def send(self, size: float) -> float:
        return self.latency + size / self.bandwidth


class Cost(NamedTuple):
    """Of one step, or of one of many on average."""

    bytes: float
    """That a machine's connection sends."""
    seconds: float

    def every(self, steps: int) -> Cost:
        """The weights are as large as the gradients, and are exchanged once in so many steps."""
        return Cost(self.bytes / steps, self.seconds / steps)


def ring(workers: int, size: float, network: Network) -> Cost:
    """All-reduce in a ring: the sum of each Nth part goes around, then all parts do. Each of the 2 (N - 1) messages
    waits for the one before.

    Args:
        size: bytes of the gradients.
    """
    messages = 2 * (workers - 1)
    return Cost(messages * size / workers, messages * network.send(size / workers))


def hierarchical(nodes: int, devices: int, size: float, network: Network, within: Network) -> Cost:
    """Within each node a ring adds up, the nodes add up these sums in a ring, and each node shares the result."""
    among = ring(nodes, size, network)
    return Cost(among.bytes, among.seconds + ring(devices, size, within).seconds)


def flat_ring(nodes: int, devices: int, size: float, network: Network) -> Cost:
    """One ring of all devices, node by node: each node's connection carries the messages of one device."""
    return ring(nodes * devices, size, network)


def parameter_server(workers: int, servers: int, size: float, network: Network) -> Cost:
    """Each worker sends gradients and fetches weights. Its own connection or that of a ps, which does it for all
    workers, is the limit."""
    own, of_ps = 2 * size / network.bandwidth, workers * size / servers / network.bandwidth
    return Cost(max(size, workers * size / servers), 2 * network.latency + max(own, of_ps))


def share(cost: Cost, compute: float) -> float:
    """Of the ideal speed that a job keeps whose steps compute for so many seconds."""
    return compute / (compute + cost.seconds)


def per_byte(rows: Sequence[Mapping[str, float]]) -> float:
    """Nanoseconds of a core for each byte that a worker sends, and receives, over gRPC: the slope through what growth
    measured, from a worker alone."""
    alone = rows[0]["core_milliseconds"]
    pairs = [(row["bytes"], 1e6 * (row["core_milliseconds"] - alone)) for row in rows[1:]]
    return sum(size * spent for size, spent in pairs) / sum(size * size for size, _ in pairs)


SENT = {
    "trainer": 1.0,
    "trainer, bfloat16 gradients": 1 / 2,
    "trainer, weights averaged every 10 steps": 1 / 10,
    "trainer, weights averaged every 30 steps": 1 / 30,
}
"""By contender of network-*.json: bytes of its exchange, as a part of the gradients' in float32."""


def check(
    figures: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]], size: float, examples: int
) -> list[tuple[str, str, float, float]]:
    """Of network-*.json: contender, bandwidth, and the milliseconds of a step that were measured and that follow from
    those on the fastest network, where the rest of a step is the same.

    Args:
        size: bytes of the gradients.
        examples: of a step of two workers.
    """
    found = []
    for name in SENT.keys() & figures.keys():
        measured = {
            mbit: examples / statistics.median(rows["examples_per_second"])
            for mbit, rows in figures[name].items()
            if rows["examples_per_second"]
        }
        fastest, *others = sorted(measured, key=float, reverse=True)
        for mbit in others:
            longer = SENT[name] * size * 8e-6 * (1 / float(mbit) - 1 / float(fastest))
            found.append((name, mbit, 1000 * measured[mbit], 1000 * (measured[fastest] + longer)))
    return sorted(found, key=lambda each: (list(SENT).index(each[0]), -float(each[1])))


def bandwidth_text(mbit: str) -> str:
    number = float(mbit)
    return f"{number / 1000:g} Gbit/s" if number >= 1000 else f"{number:g} Mbit/s"


def check_table(figures: Mapping[str, Mapping[str, Mapping[str, Sequence[float]]]]) -> list[str]:
    """As part of docs/benchmarks.md; empty without such contenders."""
    rows = check(figures, growth.MODEL_BYTES, 2 * run.BATCH)
    lines = ["| milliseconds of a step | network | measured | by the cost model |", "|---|---|---|---|"]
    lines += [f"| {name} | {bandwidth_text(mbit)} | {now:.0f} | {model:.0f} |" for name, mbit, now, model in rows]
    return ["", *lines] if rows else []


class Example(NamedTuple):
    name: str
    size: float
    nodes: int
    devices: int
    mbit: float
    latency: float
    compute: float


MB = 1e6
PCIE = Network(12e9, 10e-6)
"""Between the devices of one node."""
EXAMPLES = (
    Example("MNIST's CNN, 2 workers", 6.65 * MB, 2, 1, 10_000, 100e-6, 0.05),
    Example("the same", 6.65 * MB, 2, 1, 1_000, 100e-6, 0.05),
    Example("the same", 6.65 * MB, 2, 1, 100, 100e-6, 0.05),
    Example("the same, 32 workers", 6.65 * MB, 32, 1, 1_000, 100e-6, 0.05),
    Example("ResNet50, 8 workers", 102 * MB, 8, 1, 10_000, 50e-6, 0.2),
    Example("ResNet50, 8 nodes of 8 GPUs", 102 * MB, 8, 8, 100_000, 20e-6, 0.2),
    Example("ResNet50, 128 nodes of 8 GPUs", 102 * MB, 128, 8, 100_000, 20e-6, 0.2),
    Example("250 million parameters, 4 nodes of 8 GPUs", 1000 * MB, 4, 8, 25_000, 20e-6, 0.5),
)


def costs(example: Example) -> dict[str, Cost]:
    """By the head of the column."""
    network, workers = Network(example.mbit * 1e6 / 8, example.latency), example.nodes * example.devices
    shape = (example.nodes, example.devices, example.size, network)
    flat = flat_ring(*shape)
    found = {"ring": flat}
    if example.devices > 1:
        found["hierarchical"] = hierarchical(*shape, PCIE)
    found["every: 10"] = min(found.values(), key=lambda cost: cost.seconds).every(10)
    found["1 ps"] = parameter_server(workers, 1, example.size, network)
    found["N/2 ps"] = parameter_server(workers, max(1, workers // 2), example.size, network)
    return found


def table() -> list[str]:
    heads = ("ring", "hierarchical", "every: 10", "1 ps", "N/2 ps")
    lines = [
        f"| | network, latency | computes | {' | '.join(heads)} |",
        f"|{'---|' * (3 + len(heads))}",
    ]
    for example in EXAMPLES:
        found = costs(example)
        cells = [
            f"{_time(found[head].seconds)}, {share(found[head], example.compute):.2f}" if head in found else ""
            for head in heads
        ]
        where = f"{bandwidth_text(str(example.mbit))}, {_time(example.latency)}"
        lines.append(f"| {example.name} | {where} | {_time(example.compute)} | {' | '.join(cells)} |")
    return lines


def _time(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.3g} s"
    return f"{1000 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"


if __name__ == "__main__":
    print("\n".join(table()))
