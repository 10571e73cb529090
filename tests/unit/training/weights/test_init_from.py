"""A new job begins with the weights of a trained model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

from tests.unit.training import jobs
from trainer.job.errors import UserError
from trainer.model_dir import checkpoint
from trainer.training.model.state import TrainState, build_state
from trainer.training.task import TrainingTask
from trainer.training.weights.init_from import initial_values
from trainer.training.weights.weight_names import Slot, by_order, pair, snake_case

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
L = keras.layers


def backbone(**more: Any) -> Any:
    given = keras.Input((8,))
    x = L.BatchNormalization()(L.Dense(6, name="stem", **more)(given))
    return keras.Model(given, L.Dense(4)(L.Dense(4)(x)), name="backbone")


def classifier(classes: int, **more: Any) -> Any:
    given = keras.Input((8,))
    return keras.Model(given, L.Dense(classes, name="head")(L.Dropout(0.1)(backbone(**more)(given))))


class Net(keras.Model):  # type: ignore[misc]
    def __init__(self, classes: int, more: bool = False) -> None:
        super().__init__()
        self.blocks = [L.Dense(5), L.Dense(5)]
        if more:
            self.added = L.Dense(5)
        self.head = L.Dense(classes)

    def get_config(self) -> dict[str, Any]:
        return {}

    def call(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(self.added(x) if hasattr(self, "added") else x)


def net(classes: int, more: bool = False) -> Any:
    made = Net(classes, more)
    made(np.zeros((1, 8), "float32"))
    return made


def trained(model: Any) -> Any:
    """With values that tell all variables apart."""
    for i, v in enumerate(model.variables):
        if "seed" not in v.path:
            v.assign(np.arange(v.value.numpy().size).reshape(v.shape) % 7 + 10 * (i + 1))
    return model


def save(model: Any, folder: Path, kind: str) -> Path:
    if kind == "saved_model":
        model.export(str(folder / kind), verbose=False)
        return folder / kind
    if kind == "checkpoint":
        optimizer = keras.optimizers.SGD()
        optimizer.build(model.trainable_variables)
        state = TrainState(model, optimizer)
        checkpoint.save(folder, 5, state.values(), {"variables": state.description()})
        return folder
    path = folder / {"keras": "m.keras", "h5": "m.weights.h5"}[kind]
    (model.save if kind == "keras" else model.save_weights)(path)
    return path


def begun(model: Any, path: Path) -> tuple[dict[str, Any], str]:
    """The model's values by path of variable after init_from; those that it has not keep None."""
    job = jobs.setup(init_from={"path": str(path)})
    state = TrainState(model, keras.optimizers.SGD())
    values, report = initial_values(job, state)
    return {v.path: values.get(f"model.{i:03d}") for i, v in enumerate(model.variables)}, report


KINDS = ["keras", "h5", "saved_model", "checkpoint"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [lambda: classifier(3), lambda: net(3), lambda: jobs.network(L.Dense(2), L.Dense(3))])
def test_the_same_model_gets_all_values_though_its_layers_have_other_names(
    tmp_path: Path, kind: str, make: Any
) -> None:
    L.Dense(1), L.Dense(1)  # so that the numbers in the names differ
    old = trained(make())
    values, report = begun(make(), save(old, tmp_path, kind))
    expected = [v.value.numpy() for v in old.variables if "seed" not in v.path]
    found = [value for path, value in values.items() if "seed" not in path]
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert report.endswith(f": {len(expected)} of {len(expected)} variables")


@pytest.mark.parametrize("kind", KINDS)
def test_another_head_is_reported_and_keeps_its_own_values(tmp_path: Path, kind: str) -> None:
    old = trained(classifier(10))
    new = classifier(3)
    values, report = begun(new, save(old, tmp_path, kind))
    assert [path for path, value in values.items() if value is None and "seed" not in path] == [
        "head/kernel",
        "head/bias",
    ]
    kernel, bias = ("head/0", "head/1") if kind in ("keras", "h5") else ("head/kernel", "head/bias")
    assert report.endswith(
        f": 10 of 12 variables; of another shape or type: {kernel} (there (4, 10), here (4, 3)), "
        f"{bias} (there (10,), here (3,))"
    )


@pytest.mark.parametrize("given", [lambda o: o, keras.optimizers.LossScaleOptimizer])
def test_of_a_job_with_use_ema_the_exported_weights_are_taken(tmp_path: Path, given: Any) -> None:
    old, other = classifier(3), keras.optimizers.SGD(use_ema=True)
    ema = keras.optimizers.SGD(0.5, momentum=0.9, use_ema=True, ema_momentum=0.5)
    old.compile(given(ema), "mse")
    for optimizer in (ema, other):
        optimizer.build(old.trainable_variables)
        for i in range(3):
            optimizer.apply([np.full(v.shape, i + 1.0, np.float32) for v in old.trainable_variables])
    state = TrainState(old, given(ema), [other])
    checkpoint.save(tmp_path, 5, state.values(), {"variables": state.description()})
    last = old.get_weights()
    ema.finalize_variable_values(old.trainable_variables)
    new = classifier(3)
    values, report = begun(new, tmp_path)
    found = [value for path, value in values.items() if "seed" not in path]
    exported = [v.value.numpy() for v in old.variables if "seed" not in v.path]
    for one, another in zip(exported, found, strict=True):
        np.testing.assert_array_equal(one, another)
    assert not np.array_equal(old.get_weights()[2], last[2])
    assert report.endswith(": 12 of 12 variables; with use_ema these are the averages, as in the export")
    assert "these are the averages" not in begun(classifier(3), save(old, tmp_path / "plain", "checkpoint"))[1]


@pytest.mark.parametrize("kind", ["keras", "h5"])
def test_the_file_may_be_a_part_of_the_model_and_the_model_a_part_of_the_file(tmp_path: Path, kind: str) -> None:
    old = trained(backbone())
    values, report = begun(classifier(3), save(old, tmp_path, kind))
    np.testing.assert_array_equal(values["stem/kernel"], old.variables[0].value.numpy())
    assert "10 of 12 variables, of the model's backbone; not in the file: head/0, head/1" in report
    whole = trained(classifier(3))
    values, report = begun(backbone(), save(whole, tmp_path, kind))
    np.testing.assert_array_equal(values["stem/kernel"], whole.variables[0].value.numpy())
    assert "10 of 10 variables, of the file's backbone; only in the file: head/0, head/1" in report


def test_a_layer_that_is_added_to_a_subclassed_model_shifts_no_values(tmp_path: Path) -> None:
    old = trained(net(3))
    new = net(3, more=True)
    values, report = begun(new, save(old, tmp_path, "keras"))
    lacking = [path for path, value in values.items() if value is None]
    assert lacking == [v.path for v in new.added.variables]
    np.testing.assert_array_equal(values[new.head.kernel.path], old.head.kernel.value.numpy())
    assert report.endswith("6 of 8 variables; not in the file: added/0, added/1")


def test_values_take_the_type_of_the_models_variables(tmp_path: Path) -> None:
    old = trained(classifier(3, dtype="bfloat16"))
    path = save(old, tmp_path, "keras")
    values, _ = begun(classifier(3), path)
    assert (values["stem/kernel"].dtype, values["stem/kernel"].max()) == (np.float32, 16)
    values, _ = begun(classifier(3, dtype="float16"), path)
    assert values["stem/kernel"].dtype == np.float16


def test_frozen_layers_get_values_and_stay_frozen(tmp_path: Path) -> None:
    old, new = trained(classifier(3)), classifier(3)
    new.get_layer("backbone").trainable = False
    values, report = begun(new, save(old, tmp_path, "keras"))
    assert report.endswith("12 of 12 variables")
    np.testing.assert_array_equal(values["stem/kernel"], old.variables[0].value.numpy())
    assert [v.path for v in new.trainable_variables] == ["head/kernel", "head/bias"]


def test_a_compiled_model_begins_with_a_new_optimizer(tmp_path: Path) -> None:
    old = trained(jobs.network(L.Dense(10)))
    old.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    old.fit(np.ones((8, 8, 8)), np.zeros(8), verbose=0)
    path = save(old, tmp_path, "keras")
    job = job_of(path)
    state = build_state(job)
    values, _ = initial_values(job, state)
    assert all(name.startswith("model.") for name in values)
    assert len(values) == 2


def job_of(path: Path) -> TrainingTask:
    job = jobs.with_workload(model=lambda: jobs.network(L.Dense(10)))
    return replace(job, spec=jobs.setup(init_from=str(path)).spec)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none.keras", None, "there is no such file or folder"),
        ("m.h5", b"", "must be a .keras or .weights.h5 file, the folder of a SavedModel, a checkpoint of trainer, or"),
        ("m.h5", b"", "an .h5 file of Keras 2 is not read: load it into the same model by load_weights"),
        ("m.keras", b"junk", "cannot be read: BadZipFile: File is not a zip file"),
        ("m.weights.h5", b"junk", "cannot be read: OSError: Unable to"),
        (".", None, "this folder is none of them"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    job = job_of(path)
    with pytest.raises(UserError) as error:
        initial_values(job, build_state(job))
    assert str(error.value).startswith(f"init_from: {path}: ")
    assert message in str(error.value)


def test_an_h5_file_of_keras_2_is_refused_with_the_way_out_whatever_its_name_is(tmp_path: Path) -> None:
    jobs.network(L.Dense(10)).save(tmp_path / "m.h5")  # Keras 3 writes it as Keras 2 did
    path = (tmp_path / "m.h5").rename(tmp_path / "m.weights.h5")
    job = job_of(path)
    with pytest.raises(UserError, match=r"m\.weights\.h5: an .h5 file of Keras 2 is not read: load it"):
        initial_values(job, build_state(job))


def test_a_file_in_which_nothing_fits_is_refused(tmp_path: Path) -> None:
    path = save(classifier(3), tmp_path, "keras")
    job = job_of(path)
    with pytest.raises(
        UserError, match="none of its 12 variables has the name and shape of one of the model's 2: there "
    ):
        initial_values(job, build_state(job))


# Names. -------------------------------------------------------------------------------------------


def slots(*names: str, shape: tuple[int, ...] = (2,)) -> list[Slot]:
    return [Slot(tuple(name.split("/")), shape, "f") for name in names]


def test_names_that_the_user_gave_are_never_renumbered() -> None:
    found = pair(slots("block_3/0", "block_5/0"), slots("block_1/0", "block_3/0", "block_5/0"))
    assert found.positions == {0: 1, 1: 2}
    # Those of Keras are compared as they are first: here the second layer is left out.
    found = pair(slots("dense_2/0"), slots("dense_1/0", "dense_2/0"))
    assert found.positions == {0: 1}


def test_names_of_keras_are_counted_in_each_parent() -> None:
    names = [("a", "dense_4", "k"), ("a", "dense_9", "k"), ("dense_7", "k"), ("a", "dense_4", "b"), ("mine_3", "k")]
    assert by_order(names, {"dense"}) == [
        ("a", "dense 0", "k"),
        ("a", "dense 1", "k"),
        ("dense 0", "k"),
        ("a", "dense 0", "b"),
        ("mine_3", "k"),
    ]
    directions = [("bidirectional_2", f"{way}_lstm_5", "lstm_cell", "k") for way in ("forward", "backward")]
    assert by_order(directions, {"bidirectional", "lstm", "lstm_cell"}) == [
        ("bidirectional 0", f"{way}_lstm 0", "lstm_cell 0", "k") for way in ("forward", "backward")
    ]
    assert [snake_case(name) for name in ("Dense", "Conv2D", "BatchNormalization", "LSTM")] == [
        "dense",
        "conv2d",
        "batch_normalization",
        "lstm",
    ]


def test_a_name_that_occurs_several_times_is_paired_in_order_or_not_at_all() -> None:
    assert pair(slots("n/k", "n/k"), slots("n/k", "n/k")).positions == {0: 0, 1: 1}
    assert pair(slots("n/k", "n/k", "b/k"), slots("n/k", "b/k")).positions == {2: 1}


def test_the_naming_by_which_most_fit_is_chosen() -> None:
    ours = slots("dense_1/0", "dense_2/0", "dense_3/0")
    theirs = slots("dense_2/0", "dense_3/0", "dense_4/0")
    assert pair(ours, theirs).positions == {0: 0, 1: 1, 2: 2}
