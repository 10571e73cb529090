"""Errors whose messages do not tell what is wrong: texts of real programs (TensorFlow 2.21, Keras 3.15)."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer.debug.symptoms import matching
from trainer.protocol.known_errors import KERAS_3_HAS_NO_FIT
from trainer.protocol.tracebacks import reason

FIT = """Traceback (most recent call last):
  File "/code/train.py", line 24, in <module>
    model.fit(ds, epochs=4)
  File "/venv/lib/python3.11/site-packages/keras/src/utils/traceback_utils.py", line 122, in error_handler
    raise e.with_traceback(filtered_tb) from None
  File "/venv/lib/python3.11/site-packages/tensorflow/python/x.py", line 108, in f
"""
PER_REPLICA = """ValueError: Attempt to convert a value (PerReplica:{
  0: <tf.Tensor: shape=(32, 28, 28), dtype=float32, numpy=array([[[0.4571805]]])>
}) with an unsupported type (<class 'tensorflow.python.distribute.values.PerReplica'>) to a Tensor.
"""
PER_REPLICAS = PER_REPLICA.replace("(PerReplica", "({'x': PerReplica")
REDUCE = (
    "ValueError: Invalid reduction dimension 0 for input with 0 dimensions. for '{{node Mean}} = Mean[T=DT_FLOAT]\n"
)
WORKERS = (
    "ValueError: To use this dataset, you need to pass this dataset to ClusterCoordinator.create_per_worker_dataset.\n"
)


@pytest.mark.parametrize(
    ("error", "strategy"),
    [
        (PER_REPLICA, "MultiWorkerMirroredStrategy"),
        (PER_REPLICAS, "MultiWorkerMirroredStrategy"),
        (REDUCE, "MultiWorkerMirroredStrategy"),
        (WORKERS, "ParameterServerStrategy"),
    ],
)
def test_keras_3_s_fit_under_strategies_of_several_processes_has_the_way_out(error: str, strategy: str) -> None:
    text = reason(FIT + error, Path("/code"))
    assert "(train.py:24 in <module>); " in text
    assert f"{KERAS_3_HAS_NO_FIT} {strategy}: install tf_keras and set TF_USE_LEGACY_KERAS: '1' in env" in text
    assert "tf_keras" in matching([text], None)[0].advice


@pytest.mark.parametrize("error", [PER_REPLICA, REDUCE, WORKERS])
def test_the_same_error_of_a_loop_of_ones_own_has_none(error: str) -> None:
    for library in ("my/src/", "tf_keras/src/"):
        assert KERAS_3_HAS_NO_FIT not in reason((FIT + error).replace("keras/src/", library), Path("/code"))
