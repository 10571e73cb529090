"""Private parts of TensorFlow. A test here fails when an upgrade changes what a patch relies on."""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf
from tensorflow.python.distribute import collective_all_reduce_strategy, distribute_lib
from tensorflow.python.eager import context

from trainer.training.private import tensorflow_patches, tensorflow_private

pytestmark = pytest.mark.part("training")


def test_only_some_strategies_merge_replicas_within_an_update() -> None:
    assert tensorflow_private.replicas_decide_by_themselves()
    with tf.distribute.experimental.CentralStorageStrategy(["CPU:0"], "CPU:0").scope():
        assert not tensorflow_private.replicas_decide_by_themselves()


class Own(tf.distribute.MirroredStrategy):  # type: ignore[misc]
    """A subclass of the user's."""


STRATEGIES: dict[str, Callable[[], Any]] = {
    "tf.distribute.MirroredStrategy": tf.distribute.MirroredStrategy,
    "tf.distribute.MultiWorkerMirroredStrategy": tf.distribute.MultiWorkerMirroredStrategy,
    "tf.distribute.experimental.CentralStorageStrategy": tf.distribute.experimental.CentralStorageStrategy,
    "tf.distribute.OneDeviceStrategy": lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
    "tf.distribute.ParameterServerStrategy": lambda: tf.distribute.ParameterServerStrategy(None),
    "Own": Own,
}


@pytest.fixture
def _strategies_refused() -> Iterator[None]:
    tensorflow_patches.refuse_strategies("one_device")
    yield
    # Not `del`: the class would keep the slot of a `__new__` of its own, for which `object.__new__` takes no arguments
    # (CPython's Objects/typeobject.c, object_new).
    distribute_lib.StrategyBase.__new__ = staticmethod(lambda kind, *_, **__: object.__new__(kind))


@pytest.mark.usefixtures("_strategies_refused")
@pytest.mark.parametrize("name", STRATEGIES)
def test_a_second_strategy_is_refused(name: str) -> None:
    with pytest.raises(RuntimeError, match=rf"^{name}: the job makes its strategy, one_device, and calls model\(\) in"):
        STRATEGIES[name]()
    with tensorflow_patches.making_the_strategy():
        assert tf.distribute.OneDeviceStrategy("CPU:0").num_replicas_in_sync == 1
    assert tf.distribute.get_strategy().num_replicas_in_sync == 1


# Random numbers. ----------------------------------------------------------------------------------

DRAWN = """
import json
import tensorflow as tf
from trainer.training.private import tensorflow_patches

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
tf.random.set_seed(5)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])

def drawn():
    def step():
        return tf.stack([tf.random.uniform([]), tf.random.uniform([], seed=3)])

    values = tf.function(lambda: strategy.run(step), autograph=False)()
    return [value.numpy().tolist() for value in strategy.experimental_local_results(values)]

found = {"before": drawn()}
for name, step, seeded in (("new", 0, True), ("resumed", 50, True), ("again", 50, True), ("chance", 0, False)):
    tensorflow_patches.draw_by_replica(step, seeded=seeded)
    found[name] = drawn()
found["outside"] = tf.random.uniform([], seed=3).numpy().item()
tf.random.set_seed(5)
found["same outside"] = tf.random.uniform([], seed=3).numpy().item()
print(json.dumps(found))
"""


def test_each_replica_draws_its_own_numbers_by_tf_random() -> None:
    ended = subprocess.run([sys.executable, "-c", DRAWN], stdout=subprocess.PIPE, text=True, check=True)
    found = json.loads(ended.stdout.splitlines()[-1])
    (_, seeded), (_, seeded_too) = found["before"]
    assert seeded == seeded_too, "or the patch is no longer needed"
    assert found["new"][0] == found["before"][0]  # as in one process
    assert found["again"] == found["resumed"]
    in_steps = [*found["new"], *found["resumed"], *found["chance"]]
    for numbers in zip(*in_steps, strict=True):
        assert len(set(numbers)) == len(numbers), numbers
    assert found["outside"] == found["same outside"]


# What MultiWorkerMirroredStrategy calls. ----------------------------------------------------------


def test_the_caller_looks_the_binding_up_by_its_name() -> None:
    assert "pywrap_tfe.TFE_EnableCollectiveOps(context_handle, server_def_str)" in inspect.getsource(context)
    assert tensorflow_private.c_libraries()[1].TFE_EnableCollectiveOps


def test_the_strategy_asks_for_its_devices_by_the_method_that_is_replaced() -> None:
    extended = collective_all_reduce_strategy.CollectiveAllReduceExtended
    assert list(inspect.signature(extended._initialize_local_devices).parameters)[1:] == [
        "cluster_resolver",
        "worker_device",
    ]
    assert "self._initialize_local_devices(" in inspect.getsource(extended._initialize_multi_worker)


# AutoGraph. ---------------------------------------------------------------------------------------

CONVERTED = """
import glob, json, os, sys, traceback
import tensorflow as tf
from trainer.training.private import tensorflow_patches, tensorflow_private

if sys.argv[1] == "patched":
    tensorflow_patches.keep_no_converted_source()

@tf.function
def collatz(n):
    if n % 2 == 0:
        n = n // 2
    else:
        n = 3 * n + 1
    tf.debugging.assert_less(n, 100)
    raise ValueError("seen")

try:
    collatz(tf.constant(7))
except ValueError:
    text = traceback.format_exc()
found = [each for each in glob.glob(os.environ["TMPDIR"] + "/**", recursive=True) if "autograph" in each]
print(json.dumps([len(found), text]))
"""


@pytest.mark.parametrize("which", ["plain", "patched"])
def test_converted_source_is_in_no_file_and_still_in_tracebacks(tmp_path: Path, which: str) -> None:
    program = tmp_path / "program.py"
    program.write_text(CONVERTED)
    environ = {**os.environ, "TMPDIR": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "1"}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    command = [sys.executable, str(program), which]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environ)
    count, text = json.loads(ended.stdout.splitlines()[-1])
    assert (count > 0) == (which == "plain"), "or the patch is no longer needed"
    assert f'File "{program}", line 16, in collatz' in text
    assert 'raise ValueError("seen")' in text


def test_what_depends_on_constants_alone_has_a_value() -> None:
    large, rows = tf.range(1000), tf.Variable([3, 1])
    value, found = tensorflow_private.constant_value, dict[str, Any]()

    def positions(length: Any) -> Any:
        return tf.reshape(tf.cast(tf.range(length)[None], tf.int64), [-1])

    @tf.function
    def look(tokens: Any) -> Any:
        tensors = {
            "constant": positions(8),
            "captured": tf.reshape(large, [-1]),
            "argument": tf.reshape(tokens, [-1]),
            "of an argument's length": positions(tf.shape(tokens)[0]),
            "variable": tf.reshape(rows, [-1]),
            "random": tf.random.uniform([4], maxval=8, dtype=tf.int32),
        }
        found.update({name: value(tensor) for name, tensor in tensors.items()})

        def body(i: Any) -> Any:
            found["captured by a loop"] = value(tf.reshape(large, [-1]))
            found["argument, in a loop"] = value(tf.reshape(tokens, [-1]))
            return i + 1

        return tf.while_loop(lambda i: i < 2, body, [0])

    look.get_concrete_function(tf.TensorSpec([None], tf.int32))
    ranges = {name: each.tolist() for name, each in found.items() if each is not None}
    many = list(range(1000))
    assert ranges == {"constant": list(range(8)), "captured": many, "captured by a loop": many}
    assert len(found) == 8
    assert value(large) is None, "no graph, as under run_functions_eagerly"
