"""Errors of TensorFlow and Keras whose messages do not tell what is wrong: the way out, found in a traceback."""

from __future__ import annotations

import re

KERAS_3_HAS_NO_FIT = "Keras 3 has no fit, evaluate or predict under"
_LEGACY = "install tf_keras and set TF_USE_LEGACY_KERAS: '1' in env, or write the loop yourself"
_KERAS_3 = re.compile(r"(?<!tf_)keras/src/")
_WAYS_OUT = (
    (  # keras#20585, tensorflow#72388
        re.compile(
            r"Attempt to convert a value \([^\n]*PerReplica:|Invalid reduction dimension 0 for input with 0 dimensions"
        ),
        f"{KERAS_3_HAS_NO_FIT} MultiWorkerMirroredStrategy: {_LEGACY}",
    ),
    (  # keras#18624
        re.compile(r"pass this dataset to ClusterCoordinator\.create_per_worker_dataset"),
        f"{KERAS_3_HAS_NO_FIT} ParameterServerStrategy: {_LEGACY}",
    ),
)


def way_out(traceback: str) -> str:
    """What to do about the error of a traceback; empty if it is none of these."""
    if not _KERAS_3.search(traceback):
        return ""
    return next((text for pattern, text in _WAYS_OUT if pattern.search(traceback)), "")
