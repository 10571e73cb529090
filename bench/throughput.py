"""Examples per second of all contenders, in turns: A B C, A B C, ... A ratio compares contenders of one turn."""

from __future__ import annotations

import socket
import statistics
from collections.abc import Callable, Collection, Sequence

from bench import intervals, run
from bench.run import Process, Steps

WORKERS = 2
PEERS_PYTHON = run.ROOT / ".venv-peers" / "bin" / "python"
MWMS, PS = "multi_worker_mirrored", "parameter_server"
IDEAL, PLAIN = "2 independent processes", "MWMS, TensorFlow's default: plain loop, RING"
OURS, OURS_16 = "MWMS, trainer", "MWMS, trainer, bfloat16 gradients"
OUR_PS, CLASSIC, FIT_PS = "PS, trainer", "PS, classic: compat.v1, feed_dict", "PS, tf_keras fit"
EVERY, POWER = (
    {n: f"MWMS, trainer, weights averaged every {n} steps" for n in (10, 30)},
    "MWMS, trainer, PowerSGD of rank 4",
)
OUR_PS_16 = "PS, trainer, bfloat16 gradients and weights"
PS_EVERY = {n: f"PS, trainer, sent every {n} steps" for n in (10, 30)}
FIT, TORCH = "MWMS, tf_keras fit", "torch DDP, gloo, channels_last"
FLOAT, MIXED = "one core, trainer, float32", "one core, trainer, mixed_bfloat16"

Contender = Callable[[Steps], float]


def contenders() -> dict[str, Contender]:
    """By name, each from a number of steps to examples per second of two workers of one core.

    The fast ones take twice the steps: about as much time, which is what evens out a machine's moods.
    """
    found: dict[str, Contender] = {
        IDEAL: lambda steps: run.ours("one_device", 1, steps.times(2), jobs=WORKERS),
        OURS: lambda steps: run.ours(MWMS, WORKERS, steps.times(2)),
        OURS_16: lambda steps: run.ours(MWMS, WORKERS, steps.times(2), communication={"gradients": "bfloat16"}),
        POWER: lambda steps: run.ours(MWMS, WORKERS, steps.times(2), communication={"gradients": "powersgd"}),
        EVERY[10]: lambda steps: run.ours(MWMS, WORKERS, steps.times(3), communication={"every": 10}),
        EVERY[30]: lambda steps: run.ours(MWMS, WORKERS, steps.times(3), communication={"every": 30}),
        PLAIN: lambda steps: run.peer("plain_loop", MWMS, WORKERS, steps),
    }
    if PEERS_PYTHON.exists():
        found |= {
            FIT: lambda steps: run.peer("tf_keras_fit", MWMS, WORKERS, steps, "1"),
            f"{FIT}, 10 steps per execution": lambda steps: run.peer("tf_keras_fit", MWMS, WORKERS, steps, "10"),
            TORCH: lambda steps: _torch(steps.times(2), "float32"),
            f"{TORCH}, bfloat16 gradients": lambda steps: _torch(steps.times(2), "bfloat16"),
            f"{TORCH}, PowerSGD of rank 4": lambda steps: _torch(steps.times(2), "powersgd"),
            f"{TORCH}, post-local SGD every 10 steps": lambda steps: _torch(steps.times(3), "10"),
        }
    # Under a ps steps are the job's, not each worker's.
    found |= {
        OUR_PS: lambda steps: run.ours(PS, WORKERS, steps.times(2 * WORKERS)),
        OUR_PS_16: lambda steps: run.ours(
            PS, WORKERS, steps.times(2 * WORKERS), communication={"gradients": "bfloat16", "weights": "bfloat16"}
        ),
        # At the end of a job workers wait for the last rounds: it has many.
        PS_EVERY[10]: lambda steps: run.ours(PS, WORKERS, steps.times(4 * WORKERS), communication={"every": 10}),
        PS_EVERY[30]: lambda steps: run.ours(PS, WORKERS, steps.times(6 * WORKERS), communication={"every": 30}),
        CLASSIC: lambda steps: run.peer("classic_ps", PS, WORKERS, steps.times(WORKERS), chief=False),
    }
    if PEERS_PYTHON.exists():
        found[FIT_PS] = lambda steps: run.peer("tf_keras_fit", PS, WORKERS, steps.times(WORKERS), "1")
    if set(run.machine()["instructions"]) & set(run.BFLOAT16):
        for name, precision in ((FLOAT, "none"), (MIXED, "bfloat16")):
            found[name] = lambda steps, precision=precision: run.ours(  # type: ignore[misc]
                "one_device", 1, steps.times(2), train={"mixed_precision": precision}
            )
    return found


def measure(turns: int, smoke: bool, only: Collection[str] = ()) -> dict[str, list[float]]:
    """
    Args:
        only: contenders; all if it is empty.
    """
    known = {name: contender for name, contender in contenders().items() if not only or name in only}
    turns, steps = (1, Steps(10, 10)) if smoke else (turns, Steps(10, 20))
    if smoke:  # one of each program
        again = {f"{FIT}, 10 steps per execution", EVERY[30], PS_EVERY[30]}
        known = {name: contender for name, contender in known.items() if name not in again}
    rates: dict[str, list[float]] = {name: [] for name in known}
    for turn in range(turns):
        for name, contender in known.items():
            rates[name].append(contender(steps))
            print(f"  {turn + 1}/{turns} {name}: {rates[name][-1]:.0f} examples/s", flush=True)
    return rates


def ratio(rates: dict[str, list[float]], one: str, other: str) -> str:
    """How many times as fast one is, in the median of the turns."""
    return intervals.ratio(rates[one], rates[other]).text()


def table(rates: dict[str, list[float]]) -> list[str]:
    lines = [
        "| examples/s, 2 workers of one core, CNN, batch 64 each | median | min to max | of independent processes "
        "(95 %) | trainer is |",
        "|---|---|---|---|---|",
    ]
    for name, values in rates.items():
        own = OUR_PS if name.startswith("PS") else OURS
        alone = name in (IDEAL, FLOAT, MIXED)
        times = "" if alone or name.startswith(own) else f"{ratio(rates, own, name)} times as fast"
        share = "" if alone else ratio(rates, name, IDEAL)
        lines.append(f"| {name} | {run.spread(values)} | {share} | {times} |")
    return [*lines, "", *_verdicts(rates)]


def _verdicts(rates: dict[str, list[float]]) -> list[str]:
    """Each row of what was promised, as one sentence with its figure."""

    def lost(name: str) -> str:
        """Of what TensorFlow's default loses to the ideal, in the median of the turns."""
        turns = zip(rates[IDEAL], rates[name], rates[PLAIN], strict=True)
        return intervals.median([(ideal - own) / (ideal - default) for ideal, own, default in turns]).text(".0%")

    lines = [
        f"Of what TensorFlow's default loses to independent processes, MWMS loses {lost(OURS)}, with "
        f"bfloat16 gradients {lost(OURS_16)}."
    ]
    torch = [name for name in rates if name.startswith("torch")]
    if torch:
        best = max(torch, key=lambda name: statistics.median(rates[name]))
        lines.append(
            f'Of torch\'s best ("{best}") it reaches {ratio(rates, OURS, best)}, '
            f"with bfloat16 gradients {ratio(rates, OURS_16, best)}."
        )
    lines.append("Horovod has no wheel and is not measured.")
    if MIXED in rates:
        lines.append(f"In mixed_bfloat16 one core trains {ratio(rates, MIXED, FLOAT)} times as fast as in float32.")
    else:
        lines.append("This CPU has no bfloat16: mixed precision was not measured.")
    return [" ".join(lines)]


def _torch(steps: Steps, gradients: str) -> float:
    # contiguous was 0.8 to 0.9 of channels_last.
    command = [str(PEERS_PYTHON), str(run.PEERS / "torch_ddp.py"), *steps.words, "channels_last", gradients]
    return run.figures([Process(command, environ, i) for i, environ in enumerate(torch_ranks())])


def torch_ranks(
    address: str = "127.0.0.1", port: int | None = None, devices: Sequence[str] = ("lo",) * WORKERS
) -> list[dict[str, str]]:
    """The environments of torch's processes.

    Args:
        address, port: of the first; without a port one that is free now.
        devices: the network device of each.
    """
    if port is None:
        with socket.create_server((address, 0)) as free:
            port = free.getsockname()[1]
    shared = {"WORLD_SIZE": str(WORKERS), "MASTER_ADDR": address, "MASTER_PORT": str(port)}
    return [{**shared, "RANK": str(i), "GLOO_SOCKET_IFNAME": device} for i, device in enumerate(devices)]
