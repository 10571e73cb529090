"""A rate that was changed in code or spec holds after a job is resumed; one that a callback has changed stays."""

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.unit.training.callbacks.loop import compiled, job_of, network, train
from trainer.training.private import keras_private

pytestmark = [
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning"),
]


class Halves(keras.callbacks.Callback):  # type: ignore[misc]
    """Halves the rate at the end of each epoch."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        optimizer = self.model.optimizer
        optimizer.learning_rate = float(optimizer.learning_rate.value) / 2


def resumed(folder: Path, before: Any, after: Any, callbacks: Any = None) -> tuple[Any, list[str]]:
    """The optimizer of a job that trains an epoch with one model and a second with another, and the lines about it."""
    settings = {"validation_split": 0.0, "steps_per_epoch": 5}
    train(job_of(folder, callbacks, before, epochs=1, **settings))
    _, model, channel = train(job_of(folder, callbacks, after, epochs=2, **settings), 5)
    return keras_private.inner(model.optimizer), [line for line in channel.lines if "rate" in line]


@pytest.mark.parametrize("known", [None, lambda _: [Halves()]], ids=["alone", "with a callback"])
def test_a_rate_that_the_code_has_changed_holds_with_a_line(tmp_path: Path, known: Any) -> None:
    optimizer, lines = resumed(tmp_path, lambda: compiled(0.01), lambda: compiled(0.04), known)
    assert keras_private.rate(optimizer) == pytest.approx(0.04 / (2 if known else 1))
    expected = "the learning rate is 0.04 from step 6 on, as code or spec give it now: it was 0.01 when"
    assert [line.startswith(expected) for line in lines] == [True]
    assert int(optimizer.iterations) == 10


def test_a_rate_that_a_callback_has_changed_stays_if_the_code_has_not(tmp_path: Path) -> None:
    optimizer, lines = resumed(tmp_path, lambda: compiled(0.01), lambda: compiled(0.01), lambda _: [Halves()])
    assert keras_private.rate(optimizer) == pytest.approx(0.01 / 4)
    assert not lines


@pytest.mark.parametrize("to_schedule", [True, False])
def test_a_schedule_may_take_the_place_of_a_rate_and_the_reverse(to_schedule: bool, tmp_path: Path) -> None:
    models = [lambda: compiled(0.01), lambda: compiled(keras.optimizers.schedules.CosineDecay(0.02, 40))]
    optimizer, lines = resumed(tmp_path, *(models if to_schedule else models[::-1]))
    expected = ("0.01", "a schedule") if to_schedule else ("a schedule", "0.01")
    assert [f"is {expected[1]} from step 6 on" in line and f"it was {expected[0]} when" in line for line in lines] == [
        True
    ]
    assert int(optimizer.iterations) == 10
    slots = keras_private.slots(optimizer)
    assert len(slots) == 8  # two of each variable of the network
    assert all(np.abs(np.array(v)).max() > 0 for v in slots)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("optimizer", [keras.optimizers.SGD, keras.optimizers.Adam])
def test_a_rate_may_take_the_place_of_a_schedule_also_in_a_checkpoint_that_does_not_know_them(
    old: bool, optimizer: Any, tmp_path: Path
) -> None:
    def model(rate: Any) -> Any:
        made = network()
        made.compile(optimizer(rate), keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return made

    settings = {"validation_split": 0.0, "steps_per_epoch": 5}
    job = job_of(tmp_path, None, lambda: model(keras.optimizers.schedules.CosineDecay(0.02, 40)), epochs=1, **settings)
    train(job)
    if old:
        (meta,) = (tmp_path / "run").glob("checkpoints/*/meta.json")
        document = json.loads(meta.read_text())
        del document["rates"]
        meta.write_text(json.dumps(document))
    _, trained, _ = train(job_of(tmp_path, None, lambda: model(0.01), epochs=2, **settings), 5)
    assert keras_private.rate(keras_private.inner(trained.optimizer)) == pytest.approx(0.01)
    assert int(keras_private.inner(trained.optimizer).iterations) == 10
    assert not list((tmp_path / "run/checkpoints").glob(".damaged-*"))


def test_the_rate_of_the_spec_may_change_too(tmp_path: Path) -> None:
    def settings(rate: float, epochs: int) -> Any:
        return job_of(
            tmp_path, None, network, validation_split=0.0, steps_per_epoch=5, epochs=epochs, learning_rate=rate
        )

    train(settings(0.01, 1))
    _, _, channel = train(settings(0.002, 2), 5)
    assert [line for line in channel.lines if line.startswith("the learning rate is 0.002 from step 6 on")]
