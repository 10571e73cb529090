"""The state of callbacks survives a restart."""

import io
import json
from collections import deque, namedtuple
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.callbacks.loop import compiled
from trainer.job.errors import UserError
from trainer.model_dir import checkpoint_meta
from trainer.training.callbacks.state import OF_KERAS, Saved, States, packed, unpacked

pytestmark = pytest.mark.part("training")

Point = namedtuple("Point", "x y")


class Level(IntEnum):
    LOW = 1


class Own(keras.callbacks.Callback):  # type: ignore[misc]
    """Has no get_state()."""

    def __init__(self, patience: int = 3) -> None:
        super().__init__()
        self.patience, self.seen, self.losses, self.handle = patience, 0, list[float](), object()
        self.window = deque[int](maxlen=3)

    def on_train_begin(self, logs: Any = None) -> None:
        self.best = np.float32(9)


class Counter(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.state: Any = None

    def get_state(self) -> Any:
        return self.state

    def set_state(self, state: Any) -> None:
        self.state = state


class Stopping(keras.callbacks.EarlyStopping):  # type: ignore[misc]
    """Keras' own, with a state of its own beside it."""

    def get_state(self) -> Any:
        return {"mine": self.mine}

    def set_state(self, state: Any) -> None:
        self.mine = state["mine"]


def saved_as_file(states: States) -> Saved:
    kept, arrays = states.saved()
    epochs: checkpoint_meta.Epochs = {
        "number": 0, "done": 0, "begun": False, "count": 0.0, "steps": 1, "figures": ["loss"], "total": 9, "over": None,
        "callbacks": json.loads(json.dumps(kept)),
    }  # fmt: skip
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as archive:
        return Saved(epochs, {name: archive[name] for name in archive.files})


def begin(callbacks: list[Any], saved: Saved | None, lines: list[str] | None = None, folder: Path = Path()) -> States:
    states = States(callbacks, (list[str]() if lines is None else lines).append, str(folder))
    states.before_begin(saved, step=0)
    for callback in callbacks:
        callback.on_train_begin()
    states.after_begin(saved)
    return states


def test_the_state_that_a_callback_gives_is_set_in_order_of_classes() -> None:
    first = [Counter(), keras.callbacks.History(), Counter()]
    states = begin(first, None)
    first[0].state, first[2].state = {"count": 4, "sum": np.eye(2)}, [1.5, None]
    second = [keras.callbacks.History(), Counter(), Counter(), Counter()]
    begin(second, saved_as_file(states))
    np.testing.assert_array_equal(second[1].state["sum"], np.eye(2))
    assert (second[1].state["count"], second[2].state, second[3].state) == (4, [1.5, None], None)


def test_attributes_of_keras_callbacks_are_kept_and_their_settings_are_not() -> None:
    first = [keras.callbacks.EarlyStopping("loss", patience=3), Stopping("loss")]
    states = begin(first, None)
    first[0].best_weights, first[0].wait, first[0].best = [np.eye(2), np.arange(3)], 2, float("inf")
    first[1].wait, first[1].best, first[1].mine = 1, tf.constant(0.5), "text"  # the logs had a tensor
    second = [keras.callbacks.EarlyStopping("loss", patience=8), Stopping("loss")]
    begin(second, saved_as_file(states))
    assert (second[0].patience, second[0].wait, second[0].best) == (8, 2, float("inf"))
    np.testing.assert_array_equal(second[0].best_weights[0], np.eye(2))
    assert (second[1].wait, second[1].best, second[1].mine) == (1, 0.5, "text")


IN_A_FIT: dict[str, Callable[[Path], Any]] = {
    "CSVLogger": lambda folder: keras.callbacks.CSVLogger(folder / "log.csv"),
    "EarlyStopping": lambda _: keras.callbacks.EarlyStopping("loss", patience=1, restore_best_weights=True),
    "History": lambda _: keras.callbacks.History(),
    "LambdaCallback": lambda _: keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: None),
    "LearningRateScheduler": lambda _: keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate),
    "ModelCheckpoint": lambda folder: keras.callbacks.ModelCheckpoint(
        folder / "best.keras", "loss", save_best_only=True, save_freq=3
    ),
    "ReduceLROnPlateau": lambda _: keras.callbacks.ReduceLROnPlateau("loss", patience=0, cooldown=1),
    "TensorBoard": lambda folder: keras.callbacks.TensorBoard(folder / "board", write_steps_per_second=True),
    "TerminateOnNaN": lambda _: keras.callbacks.TerminateOnNaN(),
}
BEGINS_ANEW = {"_model", "_params", "params", "monitor_op", "min_delta", "mode", "writer", "csv_file", "append"}
OF_TENSORBOARD = {
    "_should_write_train_graph",
    "_batch_start_time",
    "_train_accumulated_time",
    "_writers",
    "_summary_module",
    "_prev_summary_state",
}


@pytest.mark.parametrize("name", IN_A_FIT)
def test_what_changes_in_a_callback_of_keras_is_in_the_table(name: str, tmp_path: Path) -> None:
    """So a new version of Keras, with other attributes, is seen here."""
    callback = IN_A_FIT[name](tmp_path)
    before: dict[str, Any] = {}

    class Looks(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_begin(self, logs: Any = None) -> None:
            before.update(vars(callback))

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            for key, value in vars(callback).items():
                if key not in before or value is not before[key] or (isinstance(value, (list, dict)) and value):
                    changed.add(key)

    changed = set[str]()
    x, y = np.zeros((16, 8, 8), np.uint8), np.zeros(16, np.int32)
    compiled().fit(x, y, batch_size=4, epochs=4, callbacks=[callback, Looks()], verbose=0)
    table = set(OF_KERAS.get(name, ()))
    allowed = table | BEGINS_ANEW | (OF_TENSORBOARD if name == "TensorBoard" else set())
    assert changed - allowed == set()
    assert table - vars(callback).keys() - {"best"} == set()


def test_a_checkpoint_of_version_0_2_gives_all_that_can_be_read() -> None:
    """It has each attribute that had changed, also of classes without get_state()."""
    old: Any = [
        {"kind": "Own", "state": {"dict": [
            ["seen", 5], ["best", {"number": ["callbacks.000", "float32"]}],
            ["losses", {"list": [1.5, {"tuple": [2]}]}],
            ["window", {"deque": [2, [1, 2]]}], ["sums", {"defaultdict": ["list", [["a", {"list": [1]}]]]}],
        ]}},
        {"kind": "EarlyStopping", "state": {"dict": [
            ["wait", 2], ["best", 0.5], ["best_weights", {"list": [{"array": ["callbacks.001", "float32"]}]}],
        ]}},
        {"kind": "Counter", "state": {"dict": [["get_state()", {"dict": [["count", 4]]}]]}},
        {"kind": "CSVLogger", "state": {"dict": []}},
    ]  # fmt: skip
    epochs: Any = {"callbacks": old}
    saved = Saved(epochs, {"callbacks.000": np.array(0.25, np.float32), "callbacks.001": np.eye(2, dtype=np.float32)})
    callbacks, lines = [Own(), keras.callbacks.EarlyStopping("loss"), Counter()], list[str]()
    begin(callbacks, saved, lines)
    assert (callbacks[0].seen, callbacks[0].best, callbacks[0].losses) == (5, 0.25, [1.5, (2,)])
    assert (callbacks[1].wait, callbacks[1].best, callbacks[2].state) == (2, 0.5, {"count": 4})
    np.testing.assert_array_equal(callbacks[1].best_weights[0], np.eye(2))
    assert lines == [
        f"warning: callbacks(): Own.{name} in the checkpoint cannot be read, and begins anew"
        for name in ("window", "sums")
    ]


def test_attributes_that_change_and_are_not_kept_are_named_once() -> None:
    lines = list[str]()
    callbacks = [Own(), keras.callbacks.EarlyStopping("loss"), Own(), Counter()]
    states = begin(callbacks, None, lines)
    saved_as_file(states)
    assert lines == []
    for callback in callbacks:
        callback.on_epoch_end(0, {"loss": 1.0})
    callbacks[2].losses.append(1.5)
    callbacks[0].window.append(1)
    callbacks[2].seen, callbacks[0].opened, callbacks[3].state = 7, object(), 3
    for _ in range(2):
        saved_as_file(states)
    assert lines == [
        "warning: callbacks(): checkpoints do not keep window, opened of Own, which begins anew after a restart; "
        "define get_state() and set_state(state) in it"
    ]


@pytest.mark.parametrize(
    "value",
    [
        (1, 2.5, float("inf"), True, None, "text", -(2**70)),
        [np.float32(0.5), np.int64(3), np.float64(0.25), ml_dtypes.bfloat16(1.5)],
        {"a": {1: [{2, "b"}]}, (1, 2): ["c"]},
    ],
    ids=["plain", "of NumPy", "nested"],
)
def test_a_value_comes_back_with_its_types(value: Any) -> None:
    arrays: dict[str, Any] = {}
    found: Any = unpacked(json.loads(json.dumps(packed(value, arrays))), arrays)
    assert found == value
    assert [type(each) for each in found] == [type(each) for each in value]


@pytest.mark.parametrize(
    "value",
    [
        Point(1, 2), Level.LOW, object(), deque([1]), np.array([object()]), np.zeros(2, [("a", "i4")]),
        np.ma.masked_array([1, 2], [True, False]), b"bytes",
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_a_state_that_would_come_back_as_another_is_refused(value: Any) -> None:
    callback = Counter()
    callback.state = {"a": [value]}
    with pytest.raises(
        UserError, match=r"callbacks\(\): Counter: checkpoints keep numbers, text, arrays, .*, not an? "
    ):
        begin([callback], None).saved()


def test_the_state_of_a_callback_that_is_no_longer_there_is_named() -> None:
    first, lines = Counter(), list[str]()
    states = begin([first, Own(), keras.callbacks.History()], None)
    begin([keras.callbacks.History()], saved_as_file(states), lines)
    assert lines == ["warning: callbacks(): the checkpoint has the state of a Counter, which is not among them"]


def test_a_csv_goes_on_without_the_lines_of_epochs_that_are_trained_again(tmp_path: Path) -> None:
    first = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    states = begin([first], None)
    first.on_epoch_end(0, {"loss": 1.5})
    saved = saved_as_file(states)
    first.on_epoch_end(1, {"loss": 1.25})
    first.on_train_end()
    second = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    begin([second], saved)
    second.on_epoch_end(1, {"loss": 1.125})
    second.on_train_end()
    assert (tmp_path / "log.csv").read_text().splitlines() == ["epoch,loss,val_loss", "0,1.5,NA", "1,1.125,NA"]


@pytest.mark.parametrize("killed", ["at once", "after a line"])
def test_a_csv_that_is_appended_to_has_each_line_once(tmp_path: Path, killed: str) -> None:
    """The task is killed before its first checkpoint, twice."""
    path = tmp_path / "log.csv"
    path.write_text("epoch,loss,val_loss\n0,9.5,NA\n")

    def logger(saved: Saved | None = None) -> tuple[Any, States]:
        callback = keras.callbacks.CSVLogger(path, append=True)
        return callback, begin([callback], saved, folder=tmp_path / "run")

    for _ in range(2):
        callback, _ = logger()
        if killed == "after a line":
            callback.on_epoch_end(0, {"loss": 1.5})
        callback.on_train_end()
    callback, states = logger()
    callback.on_epoch_end(0, {"loss": 1.25})
    saved = saved_as_file(states)
    callback.on_epoch_end(1, {"loss": 0.5})
    callback.on_train_end()
    callback, _ = logger(saved)
    callback.on_epoch_end(1, {"loss": 0.75})
    callback.on_train_end()
    assert path.read_text().splitlines() == ["epoch,loss,val_loss", "0,9.5,NA", "0,1.25,NA", "1,0.75,NA"]
