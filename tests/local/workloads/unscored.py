"""The digits model whose evaluator never scores a checkpoint, for one of several reasons."""

import os
import signal
import time
from typing import Any

from tests.local.workloads.digits_estimator import eval_input_fn, input_fn
from trainer.workloads import digits
from trainer.workloads.estimator import BestExporter, Context, Estimator, EvalSpec, FinalExporter, TrainSpec

SETTINGS = {"how": "raises"}


def on_test_data(context: Context) -> Any:
    if "TF_CONFIG" not in os.environ:  # the evaluator is outside the cluster
        if SETTINGS["how"] == "raises":
            raise ValueError("no such figure")
        if SETTINGS["how"] == "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(600)
    return eval_input_fn(context)


def train_and_evaluate() -> tuple[Estimator, TrainSpec, EvalSpec]:
    exporters = (FinalExporter("final"), BestExporter("best"))
    eval_spec = EvalSpec(on_test_data, steps=None, throttle_secs=0.0, exporters=exporters)
    return Estimator(digits.model), TrainSpec(input_fn), eval_spec
