"""Trains a feature's model by Keras' own fit on the batches of a job; prints the figures of each seed.

python -m tests.local.baseline FEATURE SHARE SEED...
"""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
from types import ModuleType
from typing import Any

import keras

from tests.local.support import ONE, api_of, spec_of
from trainer.job.cluster import tasks_of
from trainer.job.load import build
from trainer.training.task import load_task


def train(feature: str, share: float, seed: int) -> dict[str, float]:
    """The figures of model.evaluate after this share of a job's steps; with keep_best that of the best epoch too."""
    spec = build(spec_of(feature, api_of(feature), ONE, seed))
    job = load_task(spec, tasks_of(spec)[0])
    module = sys.modules[f"trainer_workload_{feature}"]
    keras.config.set_dtype_policy(_POLICIES[spec.train.mixed_precision])
    keras.utils.set_random_seed(seed)
    model = (module.in_keras if hasattr(module, "in_keras") else module.model)()
    total = int(share * job.total_steps(job.training))
    per_epoch = total // (spec.train.epochs or 1)
    with tempfile.TemporaryDirectory() as folder:
        arguments = {"validation_data": job.validation(), "callbacks": _callbacks(module, folder)}
        if hasattr(module, "of_fit"):
            arguments |= module.of_fit()
        batches, epochs = job.training.batches(job.part), total // per_epoch
        history = model.fit(batches, steps_per_epoch=per_epoch, epochs=epochs, verbose=0, **arguments).history
    best = {"best": min(history[spec.keep_best.metric])} if spec.keep_best else {}
    return {
        name: float(v) for name, v in (best | model.evaluate(job.evaluation(), verbose=0, return_dict=True)).items()
    }


def _callbacks(module: ModuleType, folder: str) -> list[Any]:
    if not hasattr(module, "callbacks"):
        return []
    made: list[Any] = module.callbacks(*[folder][: len(inspect.signature(module.callbacks).parameters)])
    return made


_POLICIES = {"none": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


if __name__ == "__main__":
    name, of_steps, *seeds = sys.argv[1:]
    print(json.dumps([train(name, float(of_steps), int(seed)) for seed in seeds]))
