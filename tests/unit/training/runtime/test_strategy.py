"""Strategies configure TensorFlow's context, which a process can do only once, so each test has its own process."""

import json
import os
import socket
import subprocess
import sys
from typing import Any

import pytest
import tensorflow as tf

from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.job.strategies import STRATEGIES
from trainer.training.runtime import strategy

pytestmark = pytest.mark.part("training")


def spec_of(name: str, worker: dict[str, Any] | None = None, **more: Any) -> JobSpec:
    return build({"name": "j", "strategy": name, "tasks": {"worker": worker or {}}, **more})


@pytest.fixture
def port() -> int:
    """An address without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        number: int = server.getsockname()[1]
        return number


def run(program: str, *arguments: str) -> Any:
    """What a program prints as its last line, in JSON."""
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "1"},
    )  # fmt: skip
    return json.loads(ended.stdout.splitlines()[-1])


def test_every_strategy_that_trains_can_be_created() -> None:
    assert set(strategy._MAKERS) == {name for name, row in STRATEGIES.items() if row.trains}


# Devices. -----------------------------------------------------------------------------------------

# Each: a strategy, its worker, and the devices that hold a replica.
DEVICES: list[tuple[str, dict[str, Any], list[str]]] = [
    ("mirrored", {}, ["CPU:0"]),
    ("mirrored", {"cpu_devices": 3}, ["CPU:0", "CPU:1", "CPU:2"]),
    ("mirrored", {"gpus": 2, "cpu_devices": 3}, ["GPU:0", "GPU:1"]),
    ("central_storage", {"cpu_devices": 2}, ["CPU:0", "CPU:1"]),
    ("central_storage", {"gpus": 2}, ["GPU:0", "GPU:1"]),
    ("one_device", {}, ["CPU:0"]),
    ("one_device", {"cpu_devices": 3}, ["CPU:0"]),
    ("one_device", {"gpus": 2}, ["GPU:0"]),
]


@pytest.mark.parametrize(("name", "worker", "devices"), DEVICES)
def test_replicas_are_on_the_gpus_of_a_task_or_on_its_cpus(
    name: str, worker: dict[str, Any], devices: list[str]
) -> None:
    spec = spec_of(name, worker)
    assert strategy.compute_devices(spec, tasks_of(spec)[0]) == devices


@pytest.mark.parametrize(
    ("name", "devices"),
    [("mirrored", ["GPU:2", "GPU:0"]), ("central_storage", ["CPU:1"]), ("one_device", ["GPU:1"])],
)
def test_devices_that_the_spec_names_are_taken_as_they_are(name: str, devices: list[str]) -> None:
    spec = spec_of(name, {"gpus": 3, "cpu_devices": 2}, devices=devices)
    assert strategy.compute_devices(spec, tasks_of(spec)[0]) == devices


# Every one: [type, replicas in sync, devices, sum of a 1 of each replica, how gradients are summed].
MAKE = """
import json, os, sys
import tensorflow as tf
from trainer.job.errors import TrainerError
from trainer.job.load import build
from trainer.job.cluster import tasks_of
from trainer.training.runtime import strategy

def make(address, **more):
    spec = build({"name": "j", "tasks": {"worker": {"cpu_devices": 2}}, **more})
    task = tasks_of(spec, lambda *_: address)[0]
    if spec.strategy == "multi_worker_mirrored":
        os.environ["TF_CONFIG"] = task.tf_config()
    return strategy.make(spec, task)

def described(made):
    total = tf.function(lambda: made.reduce("sum", made.run(lambda: tf.constant(1.0)), axis=None))()
    operations = getattr(made.extended, "_cross_device_ops", None)
    devices = [name.split("/device:")[1] for name in made.extended.worker_devices]
    return [type(made).__name__, made.num_replicas_in_sync, devices, float(total), type(operations).__name__]

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
"""

IN_ONE_TASK = """
found = {}
try:
    make("host:1", strategy="tpu", tasks={"worker": 1})
except TrainerError as error:
    found["tpu"] = [str(error), error.code]
for how in ("auto", "hierarchical_copy", "reduction_to_one_device"):
    made = make("host:1", strategy="mirrored", communication={"implementation": how})
    both = made.run(tf.function(lambda: tf.distribute.get_replica_context().all_reduce("sum", tf.constant(1.0))))
    found[how] = [*described(made), [float(each) for each in made.experimental_local_results(both)]]
found["mirrored CPU:1"] = described(make("host:1", strategy="mirrored", devices=["CPU:1"]))
made = make("host:1", strategy="central_storage")
with made.scope():
    variable = tf.Variable(1.0)
found["central_storage"] = [*described(made), variable.device.split("/device:")[1]]
found["one_device"] = described(make("host:1", strategy="one_device"))
found["one_device CPU:1"] = described(make("host:1", strategy="one_device", devices=["CPU:1"]))
print(json.dumps(found))
"""


def test_each_strategy_of_one_task_computes_on_its_devices_and_without_a_tpu_there_is_none() -> None:
    found = run(MAKE + IN_ONE_TASK)
    message, code = found.pop("tpu")
    assert message.startswith("tpu.address: 'local': there is no TPU that can be used: TPUs not found in the cluster.")
    assert message.isprintable(), "one line"
    assert len(message) < 300
    assert code == Exit.DEVICES
    both = ["CPU:0", "CPU:1"]
    assert found == {
        "auto": ["MirroredStrategy", 2, both, 2.0, "CollectiveAllReduce", [2.0, 2.0]],
        "hierarchical_copy": ["MirroredStrategy", 2, both, 2.0, "HierarchicalCopyAllReduce", [2.0, 2.0]],
        "reduction_to_one_device": ["MirroredStrategy", 2, both, 2.0, "ReductionToOneDevice", [2.0, 2.0]],
        "mirrored CPU:1": ["MirroredStrategy", 1, ["CPU:1"], 1.0, "CollectiveAllReduce"],
        "central_storage": ["CentralStorageStrategy", 2, both, 2.0, "ReductionToOneDevice", "CPU:0"],
        "one_device": ["OneDeviceStrategy", 1, ["CPU:0"], 1.0, "NoneType"],
        "one_device CPU:1": ["OneDeviceStrategy", 1, ["CPU:1"], 1.0, "NoneType"],
    }


AMONG_TASKS = """
how = {"implementation": "ring", "bytes_per_pack": 99}
made = make(f"127.0.0.1:{sys.argv[1]}", strategy="multi_worker_mirrored", communication=how)
options = made.extended._communication_options
print(json.dumps([*described(made), options.implementation.value, options.bytes_per_pack]))
"""


def test_multi_worker_mirrored_has_a_replica_per_cpu_device_and_uses_the_communication_of_the_spec(port: int) -> None:
    name = "CollectiveAllReduceStrategy"
    expected = [name, 2, ["CPU:0", "CPU:1"], 2.0, "CollectiveAllReduce", "RING", 99]
    assert run(MAKE + AMONG_TASKS, str(port)) == expected


# TPUs. --------------------------------------------------------------------------------------------


class Tpu:
    """Stands for TensorFlow's part, and keeps the order in which it was called."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, cores: int = 8, fails: tuple[str, Exception] | None = None):
        self.calls: list[tuple[str, Any]] = []
        self.num_replicas_in_sync = cores
        self._fails = fails
        monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", self._part("resolve", "resolver"))
        monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", self._part("connect"))
        monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", self._part("initialize"))
        monkeypatch.setattr(tf.distribute, "TPUStrategy", self._part("build", self))

    def _part(self, name: str, gives: Any = None) -> Any:
        def part(*args: Any, **kwargs: Any) -> Any:
            self.calls.append((name, args or kwargs))
            if self._fails and self._fails[0] == name:
                raise self._fails[1]
            return gives

        return part


def make_tpu(**tpu: Any) -> Any:
    spec = spec_of("tpu", tpu=tpu)
    return strategy.make(spec, tasks_of(spec)[0])


def refusal(**tpu: Any) -> str:
    with pytest.raises(TrainerError) as caught:
        make_tpu(**tpu)
    assert caught.value.code is Exit.DEVICES
    assert str(caught.value).isprintable(), "one line"
    return str(caught.value)


def test_tensorflow_that_ran_before_the_strategy_is_the_workloads_import(
    monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "workload": "my.py", "tasks": {"worker": 2}})
    task = tasks_of(spec, lambda _, index: f"127.0.0.1:{port + index}")[0]
    monkeypatch.setenv("TF_CONFIG", task.tf_config())
    tf.constant(1)
    with pytest.raises(UserError, match=r"^workload: my\.py: a module that it imports runs TensorFlow operations"):
        strategy.make(spec, task)


def test_a_tpu_is_resolved_connected_to_initialized_and_then_used(monkeypatch: pytest.MonkeyPatch) -> None:
    tpu = Tpu(monkeypatch)
    assert make_tpu(address="my-tpu") is tpu
    assert tpu.calls == [
        ("resolve", {"tpu": "my-tpu"}),
        ("connect", ("resolver",)),
        ("initialize", ("resolver",)),
        ("build", ("resolver",)),
    ]


def test_a_tpu_must_have_the_number_of_cores_in_the_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    Tpu(monkeypatch, cores=4)
    assert make_tpu(cores=4).num_replicas_in_sync == 4
    assert refusal() == "tpu.cores: 8: the TPU has 4; set tpu.cores=4"


FAILURES = [
    ("resolve", ValueError("Please provide a TPU Name\nto connect to."), "Please provide a TPU Name to connect to."),
    ("resolve", OSError(111, "Connection refused"), "[Errno 111] Connection refused"),
    ("connect", tf.errors.UnavailableError(None, None, "failed to connect"), "failed to connect"),
    ("initialize", tf.errors.NotFoundError(None, None, "TPUs not found"), "TPUs not found"),
    ("build", RuntimeError("x" * 500), "x" * 200),
]


@pytest.mark.parametrize(("where", "error", "reported"), FAILURES)
def test_a_tpu_that_cannot_be_used_is_reported_in_one_line(
    monkeypatch: pytest.MonkeyPatch, where: str, error: Exception, reported: str
) -> None:
    tpu = Tpu(monkeypatch, fails=(where, error))
    assert refusal(address="my-tpu") == f"tpu.address: 'my-tpu': there is no TPU that can be used: {reported}"
    assert tpu.calls[-1][0] == where


def test_an_address_without_a_listener_is_reported_before_tensorflow_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, port: int
) -> None:
    tpu, address = Tpu(monkeypatch), f"grpc://127.0.0.1:{port}"
    assert refusal(address=address) == f"tpu.address: {address!r}: cannot be reached within 10 s: Connection refused"
    assert tpu.calls == []


def test_an_address_with_a_listener_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    tpu = Tpu(monkeypatch)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"grpc://127.0.0.1:{server.getsockname()[1]}"
        assert make_tpu(address=address) is tpu
    assert tpu.calls[0] == ("resolve", {"tpu": address})


@pytest.mark.parametrize("address", ["h:abc", "h:99999", "[::1", ""])
def test_an_address_that_is_none_is_reported(address: str) -> None:
    with pytest.raises(UserError, match=r"^tpu\.address: grpc://'"):
        strategy._require_reachable(f"grpc://{address}")


def test_an_address_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(address: tuple[str, int], seconds: float) -> None:
        assert (address, seconds) == (("10.0.0.2", 8470), 10.0), "8470 is a TPU's port"
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket, "create_connection", silent)
    reported = refusal(address="grpc://10.0.0.2")
    assert reported == "tpu.address: 'grpc://10.0.0.2': cannot be reached within 10 s: no answer"
