"""The usual alternative: torch's DistributedDataParallel over gloo, the same network, data and optimizer.

    python torch_ddp.py WARM_UP STEPS FORMAT GRADIENTS [LEARNING_RATE]
                                                        contiguous or channels_last; float32, bfloat16,
                                                        powersgd (rank 4), or the period of post-local SGD

as one rank, with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT and TRAINER_DATA_DIR. Prints `examples_per_second=N`, of
all ranks together. With 0 STEPS it goes on until it is killed, and prints `step=N time=T` after each WARM_UP
steps, and with a LEARNING_RATE the accuracy on the test data too.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import PostLocalSGDOptimizer

BATCH = 64


def main() -> None:
    warm_up, steps = int(sys.argv[1]), int(sys.argv[2])
    memory = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}[sys.argv[3]]
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    with np.load(Path(os.environ["TRAINER_DATA_DIR"]) / "mnist.npz") as archive:
        x = torch.from_numpy(archive["x_train"][rank::ranks]).unsqueeze(1)
        y = torch.from_numpy(archive["y_train"].astype("int64")[rank::ranks])
    # Of two buckets PowerSGD's callbacks send in any order: gloo ended with "a distributed collective mismatch".
    one_bucket = 64 if sys.argv[4] == "powersgd" else None
    model = nn.parallel.DistributedDataParallel(cnn().to(memory_format=memory), bucket_cap_mb=one_bucket)
    rate = float(sys.argv[5]) if len(sys.argv) > 5 else 1e-4
    optimizer: torch.optim.Optimizer = torch.optim.Adam(model.parameters(), rate, fused=True)
    if sys.argv[4] == "bfloat16":
        model.register_comm_hook(None, default_hooks.bf16_compress_hook)
    elif sys.argv[4] == "powersgd":
        power = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
        model.register_comm_hook(power, powerSGD_hook.powerSGD_hook)
    elif sys.argv[4] != "float32":
        alone, _ = distributed.new_subgroups(1)
        local = post_localSGD_hook.PostLocalSGDState(None, alone, start_localSGD_iter=2)
        model.register_comm_hook(local, post_localSGD_hook.post_localSGD_hook)
        averager = PeriodicModelAverager(int(sys.argv[4]), warmup_steps=2)
        optimizer = PostLocalSGDOptimizer(optimizer, averager)

    def run(count: int) -> None:
        for _ in range(count):
            chosen = torch.randint(0, len(x), (BATCH,))
            batch = x[chosen].float().div_(255).contiguous(memory_format=memory)
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(batch), y[chosen]).backward()
            optimizer.step()

    if not steps:
        run_for_ever(run, warm_up, (lambda: accuracy(model.module, memory)) if len(sys.argv) > 5 else None)
    run(warm_up)
    begun = time.perf_counter()
    run(steps)
    print(f"examples_per_second={steps * BATCH * ranks / (time.perf_counter() - begun):.1f}", flush=True)
    if rank:
        signal.pause()  # until it is killed: rank 0 may still receive
    os._exit(0)


def run_for_ever(run: Callable[[int], None], steps: int, accuracy: Callable[[], float] | None) -> None:
    run(3)  # rounds of post-local SGD end after steps 3, 3 + period, ...: then all ranks have the same weights
    for count in itertools.count(1):
        run(steps)
        score = f" accuracy={accuracy()}" if accuracy else ""
        print(f"step={count * steps} time={time.time()}{score}", flush=True)


def accuracy(model: nn.Module, memory: torch.memory_format) -> float:
    with np.load(Path(os.environ["TRAINER_DATA_DIR"]) / "mnist.npz") as archive:
        x, y = torch.from_numpy(archive["x_test"]).unsqueeze(1), torch.from_numpy(archive["y_test"].astype("int64"))
    with torch.no_grad():
        parts = [model(each.float().div_(255).contiguous(memory_format=memory)).argmax(1) for each in x.split(500)]
    return float((torch.cat(parts) == y).float().mean())


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(3136, 500), nn.ReLU(), nn.Linear(500, 10),
    )  # fmt: skip


if __name__ == "__main__":
    main()
