"""torch's DistributedDataParallel over gloo with the networks of bench/networks: ResNet50, and a wide one.

    python torch_large.py NETWORK WARM_UP STEPS BATCH GRADIENTS         resnet50 or wide; float32 or bfloat16

as one rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Prints `examples_per_second=N`, of all ranks together.
"""

from __future__ import annotations

import os
import signal
import sys
import time

import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

ROWS, COLUMNS, WORDS, UNITS = 4_000_000, 40, 8, 12_000
SIDE = 64


def main() -> None:
    name, warm_up, steps, batch = sys.argv[1], *map(int, sys.argv[2:5])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    network = (resnet50 if name == "resnet50" else wide)()
    model = nn.parallel.DistributedDataParallel(network)
    optimizers: list[torch.optim.Optimizer] = [
        torch.optim.Adam([p for n, p in network.named_parameters() if n != "0.weight" or name != "wide"], fused=True)
    ]
    if name == "wide":
        optimizers.append(torch.optim.SparseAdam(network[0].parameters()))
    if sys.argv[5] == "bfloat16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)

    def run(count: int) -> None:
        for _ in range(count):
            y = torch.randint(0, 10, (batch,))
            for optimizer in optimizers:
                optimizer.zero_grad()
            nn.functional.cross_entropy(model(some(name, batch)), y).backward()
            for optimizer in optimizers:
                optimizer.step()

    run(warm_up)
    begun = time.perf_counter()
    run(steps)
    rate = steps * batch * distributed.get_world_size() / (time.perf_counter() - begun)
    print(f"examples_per_second={rate:.1f}", flush=True)
    if distributed.get_rank():
        signal.pause()  # until it is killed: rank 0 may still receive
    os._exit(0)


def some(name: str, batch: int) -> torch.Tensor:
    if name == "wide":
        return torch.randint(0, ROWS, (batch, WORDS))
    return torch.randn(batch, 3, SIDE, SIDE).contiguous(memory_format=torch.channels_last)


def wide() -> nn.Sequential:
    return nn.Sequential(
        nn.Embedding(ROWS, COLUMNS, sparse=True), nn.Flatten(), nn.Linear(WORDS * COLUMNS, UNITS), nn.ReLU(),
        nn.Linear(UNITS, UNITS // 2), nn.ReLU(), nn.Linear(UNITS // 2, 10),
    )  # fmt: skip


class Bottleneck(nn.Module):  # type: ignore[misc]  # torch is in .venv-peers
    def __init__(self, given: int, width: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            *normal(given, width, 1, stride),
            nn.ReLU(),
            *normal(width, width, 3),
            nn.ReLU(),
            *normal(width, 4 * width, 1),
        )
        same = given == 4 * width and stride == 1
        self.short = nn.Identity() if same else nn.Sequential(*normal(given, 4 * width, 1, stride))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.relu(self.main(x) + self.short(x))


def normal(given: int, width: int, size: int, stride: int = 1) -> tuple[nn.Module, nn.Module]:
    return nn.Conv2d(given, width, size, stride, size // 2), nn.BatchNorm2d(width)


def resnet50() -> nn.Module:
    """As keras.applications has it: strides in the first convolution of a block, and biases."""
    blocks, given = [*normal(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)], 64
    for width, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for i in range(count):
            blocks.append(Bottleneck(given, width, 2 if i == 0 and width > 64 else 1))
            given = 4 * width
    network = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(given, 10))
    return network.to(memory_format=torch.channels_last)


if __name__ == "__main__":
    main()
