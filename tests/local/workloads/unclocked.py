"""adversarial.py, in a loop that does not measure the time of its steps."""

from __future__ import annotations

import keras

from tests.local.workloads import adversarial, measured

DATASET = adversarial.DATASET


def model() -> keras.Model:
    measured.leave_out("clocks")
    return adversarial.model()
