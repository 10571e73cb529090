from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training import two_tasks
from tests.unit.training.jobs import setup
from trainer.job.errors import UserError
from trainer.job.load import build
from trainer.model_dir import arrays, checkpoint
from trainer.training.model.state import TrainState, build_state
from trainer.training.task import TrainingTask
from trainer.training.weights.restore import restore
from trainer.workloads import workload

ONE = tf.distribute.get_strategy()

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = [
    pytest.mark.part("training"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"),
]


def save(digits: TrainingTask, state: TrainState, step: int) -> Path:
    meta = {"compatibility_key": digits.compatibility_key, "variables": state.description()}
    return checkpoint.save(digits.spec.directory, step, state.values(), meta)


def test_restore_gives_the_newest_whole_checkpoint(tmp_path: Path) -> None:
    digits = setup(model_dir=str(tmp_path), train={"seed": 1})
    state = build_state(digits)
    assert restore(ONE, digits, state, 100) == (0, [])
    saved = state.values()
    save(digits, state, 10)
    (save(digits, state, 20) / "variables.npz").write_bytes(b"")
    other = build_state(setup(model_dir=str(tmp_path), train={"seed": 2}))
    step, broken = restore(ONE, digits, other, 100)
    assert (step, len(broken)) == (10, 1)
    assert all((value == saved[name]).all() for name, value in other.values().items())


def test_variables_keep_their_values_though_memory_of_arrays_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "LARGE", 0)
    digits = setup(model_dir=str(tmp_path))
    state = build_state(digits)
    rng = np.random.default_rng(5)
    saved = {name: rng.integers(0, 99, v.shape).astype(v.dtype) for name, v in state.values().items()}
    state.assign(saved)
    save(digits, state, 10)
    state.assign({name: np.zeros_like(value) for name, value in saved.items()})
    assert restore(ONE, digits, state, 100) == (10, [])
    assert all((value == saved[name]).all() for name, value in state.values().items())


def test_restore_refuses_another_model(tmp_path: Path) -> None:
    digits = setup(model_dir=str(tmp_path))
    save(digits, build_state(digits), 10)

    def bigger() -> keras.Model:
        return keras.Sequential([keras.Input((8, 8), dtype="uint8"), keras.layers.Flatten(), keras.layers.Dense(10)])

    other = replace(digits, workload=replace(digits.workload, model=bigger))
    with pytest.raises(UserError, match=r"does not fit this spec: variable \S+: checkpoint float32\[64, 128\], model"):
        restore(ONE, other, build_state(other), 100)


def test_restore_refuses_a_checkpoint_past_the_end_of_the_job(tmp_path: Path) -> None:
    """Whatever the end follows from: steps, epochs, or the default."""
    state = build_state(setup())
    save(setup(model_dir=str(tmp_path)), state, 1500)
    for train, message in {
        (): "train.steps: the checkpoint is at step 1500, this job ends at step 1000",
        (("steps", 1499),): "train.steps: the checkpoint is at step 1500, this job ends at step 1499",
        (("epochs", 2),): "train.epochs: 2: the checkpoint is at step 1500, this job ends at step 44",
    }.items():
        digits = setup(model_dir=str(tmp_path), train=dict(train))
        total = digits.total_steps(digits.split(workload.Shard("train")))
        with pytest.raises(UserError, match=f"its checkpoint of step 1500 does not fit this spec: {message}; undo the"):
            restore(ONE, digits, state, total)
    digits = setup(model_dir=str(tmp_path), train={"steps": 1500})
    assert restore(ONE, digits, state, 1500) == (1500, [])


def test_a_bfloat16_variable_survives_a_checkpoint(tmp_path: Path) -> None:
    def model() -> keras.Model:
        return keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, dtype="bfloat16")])

    digits = setup(model_dir=str(tmp_path), train={"optimizer": "sgd"})
    digits = replace(digits, workload=replace(digits.workload, model=model))
    state = build_state(digits)
    saved = state.values()["model.000"].astype(np.float32)
    save(digits, state, 10)
    state.assign({name: np.zeros_like(value) for name, value in state.values().items()})
    assert restore(ONE, digits, state, 100) == (10, [])
    assert (state.values()["model.000"].astype(np.float32) == saved).all()


# The chief's values for all. ------------------------------------------------------------------------

WORKLOAD = """
import keras, tensorflow as tf, trainer

def model():
    return keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])

def data(shard):
    return trainer.files("lines.txt", lambda line: tf.cast(tf.strings.length(line), tf.float32)[None])
"""

PROGRAM = """
import time
from dataclasses import replace
from types import SimpleNamespace
import keras
import numpy as np
from trainer.job.load import build
from trainer.model_dir import checkpoint
from trainer.training.exchange import broadcast
from trainer.training.weights import agreement, restore
from trainer.training.model.state import build_state
from trainer.training.task import load_task

job = load_task(spec, task, lambda event: print(event, flush=True))
job.training  # indexes the files
if not task.is_chief:
    time.sleep(2 * spec.deadlines.progress)  # stands for the time that large files take
agreement.require_same_files(job)
print("the same files", flush=True)
broadcast._WORDS = 3
rng = np.random.default_rng(task.index)
values = {
    "floats": rng.random((2, 5), np.float32), "step": np.array(7 + task.index, np.int64),
    "small": rng.integers(0, 9, 3, np.uint8), "none": np.zeros([0, 4], np.float64),
}
shared = broadcast.from_chief(values, task, None)
print({name: (v.dtype.name, v.tolist()) for name, v in shared.items()}, flush=True)

with strategy.scope():
    state = build_state(job)
if task.is_chief:
    meta = {"compatibility_key": job.compatibility_key, "variables": state.description()}
    def damage(step, position):
        given = {name: np.full_like(v, step + i) for i, (name, v) in enumerate(state.values().items())}
        path = checkpoint.save(spec.directory, step, given, meta) / "variables.npz"
        whole = bytearray(path.read_bytes())
        if position is not None:
            whole[position(whole, given)] ^= 1
        path.write_bytes(whole)

    damage(10, None)
    damage(20, lambda whole, given: whole.rindex(list(given.values())[-1].tobytes()))  # shows when all is read
    damage(30, lambda whole, given: whole.index(b"descr", whole.index(b"descr") + 1))  # of the second array
lines = SimpleNamespace(send=lambda line: print(line.text, flush=True))
restore._PACK_BYTES = 8
step = restore.restore_everywhere(strategy, job, state, 100, lines, 1)
print(step, all((v == 10 + i).all() for i, v in enumerate(state.values().values())), flush=True)

spec = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, "workload": spec.workload,
              "model_dir": spec.directory + "/begun", "init_from": {"path": os.environ["INIT_FROM"]}})
job = replace(job, spec=spec)
with strategy.scope():
    state.model.compile(keras.optimizers.SGD())  # Keras lists the names of its attributes too
step = restore.restore_everywhere(strategy, job, state, 100, lines, 0)
print(step, [v.tolist() for name, v in state.values().items() if name.startswith("model")], flush=True)
"""


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each of two tasks prints, the second of which is late. TensorFlow warns about the order in which they
    end."""
    folder = tmp_path_factory.mktemp("late")
    (folder / "lines.txt").write_text("a\nbb\n")
    (folder / "late.py").write_text(WORKLOAD)
    spec = build(
        {"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": 2}, "deadlines": {"progress": 1}}
        | {"workload": str(folder / "late.py"), "model_dir": str(folder / "run")}
    )
    first = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1, name="dense")])
    first.set_weights([np.array([[3]]), np.array([5])])
    first.save(folder / "first.keras")
    return two_tasks.outputs(spec, PROGRAM, INIT_FROM=str(folder / "first.keras"))


def test_the_chiefs_values_reach_all_tasks_in_pieces(outputs: list[str]) -> None:
    chiefs, others = ([line for line in output.splitlines() if line.startswith("{'floats'")] for output in outputs)
    assert chiefs == others
    assert "'step': ('int64', 7)" in chiefs[0]
    assert "'none': ('float64', [])" in chiefs[0]


def test_files_are_compared_however_late_a_task_has_found_their_records(outputs: list[str]) -> None:
    for output in outputs:
        lines = output.splitlines()
        assert lines.index("Indexed()") < lines.index("the same files")


def test_after_a_damaged_checkpoint_all_tasks_have_the_values_of_the_one_before(outputs: list[str]) -> None:
    assert all("10 True" in output.splitlines() for output in outputs), "\n".join(outputs)[-6000:]
    assert "step-00000020 is damaged" in outputs[0]
    assert "step-00000030 is damaged" in outputs[0]


def test_all_tasks_begin_with_the_weights_of_a_keras_file(outputs: list[str]) -> None:
    assert all("0 [[[3.0]], [5.0]]" in output.splitlines() for output in outputs), "\n".join(outputs)[-6000:]
