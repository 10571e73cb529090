"""A workload's fit(), with a loop that does not train. Complete jobs: tests/local/test_keras_fit.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.jobs import network, setup, with_data
from trainer.job.errors import Exit, TrainerError, UserError
from trainer.training import inputs
from trainer.training.callbacks.hooks import Replaced
from trainer.training.loops import keras_fit
from trainer.training.model import evaluation, state
from trainer.training.model.checks import require_data_to_evaluate
from trainer.training.outputs.finish import Trained
from trainer.training.task import TrainingTask
from trainer.workloads.types import Model

MODEL = """
import keras
DATASET = "digits"
def model():
    made = keras.Sequential([keras.Input((8, 8)), keras.layers.Flatten(), keras.layers.Dense(10)])
    made.compile("sgd", "sparse_categorical_crossentropy")
    return made
"""


class Loop:
    """Stands for a strategy's loop: keeps what it was called with."""

    def __init__(self, does: Callable[[], Trained] = lambda: Trained(100, False, (0.0, 0))) -> None:
        self.does, self.calls = does, list[TrainingTask]()

    def __call__(self, job: TrainingTask) -> Trained:
        self.calls.append(job)
        return self.does()


def job_of(tmp_path: Path, fit: str = "", **spec: Any) -> TrainingTask:
    """Two devices of 32 examples each, 22 steps in an epoch; `fit` is the body of fit(model, run)."""
    path = tmp_path / "mine.py"
    body = "".join(f"\n    {line}" for line in fit.splitlines())
    path.write_text(MODEL + (f"def fit(model, run):{body}\n" if fit else ""))
    train = {"batch_size": 32, "epochs": 5, **spec.pop("train", {})}
    return setup({"worker": {"cpu_devices": 2}}, api="keras_fit", workload=str(path), train=train, **spec)


def compiled(model: Model | None = None) -> Model:
    model = model or network(keras.layers.Dense(10))
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


def fit(job: TrainingTask, loop: Loop | None = None, model: Model | None = None) -> Trained:
    return keras_fit.run(job, model or compiled(), loop or Loop())


ALL = (
    "model.fit(run.train, epochs=run.epochs, steps_per_epoch=run.steps_per_epoch, initial_epoch=run.initial_epoch, "
    "callbacks=run.callbacks(), batch_size=64, shuffle=True, verbose=2)"
)


@pytest.mark.parametrize(
    "text", ["", ALL, "run.fit(model)", "model.fit(x=run.train)", "run.fit(model, epochs=run.epochs)"]
)
def test_fit_is_the_loop(tmp_path: Path, text: str) -> None:
    loop = Loop()
    assert fit(job_of(tmp_path, text), loop).step == 100
    assert len(loop.calls) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "model.fit([1.0, 2.0])",
            "model.fit(x=[1.0, 2.0]): data(shard) gives the training data; write model.fit(run.train, ...)",
        ),
        ("model.fit(run.train, [1])", "model.fit(y=[1]): data(shard) gives the labels too; leave it out"),
        (
            "run.fit(model, batch_size=32)",
            "model.fit(batch_size=32): the spec decides, by train.global_batch_size: 64; leave it out",
        ),
        (
            "run.fit(model, epochs=3)",
            "model.fit(epochs=3): the spec decides; set train.epochs, and write epochs=run.epochs",
        ),
        (
            "run.fit(model, steps_per_epoch=9)",
            "model.fit(steps_per_epoch=9): write steps_per_epoch=run.steps_per_epoch",
        ),
        (
            "run.fit(model, initial_epoch=2)",
            "model.fit(initial_epoch=2): a job resumes by itself; write initial_epoch=run.initial_epoch",
        ),
        (
            "run.fit(model, validation_split=0.1)",
            "model.fit(validation_split=0.1): set train.validation_split in the spec",
        ),
        (
            "run.fit(model, shuffle=False)",
            "model.fit(shuffle=False): arrays are shuffled; for an order of your own data(shard) may give a Dataset",
        ),
        (
            "run.fit(model, sample_weight=model.get_weights()[0])",
            "model.fit(sample_weight=<ndarray>): data(shard) gives weights too: (x, y, sample_weight)",
        ),
        (
            "run.fit(model, validation_freq=2)",
            "model.fit(validation_freq=2): each epoch ends with a validation; leave it out",
        ),
        (
            "run.fit(model, class_weight=[1.0, 2.0])",
            "model.fit(class_weight=[1.0, 2.0]): must be a dict of weights by class number: {0: 1.0, 1: 2.5}",
        ),
        *(
            (
                f"run.fit(model, class_weight={weights})",
                f"model.fit(class_weight={weights}): must be a dict of weights by class number: {{0: 1.0, 1: 2.5}}",
            )
            for weights in ("{'0': 1.0}", "{0.5: 1.0}", "{1099511627776: 2.0}")
        ),
        (
            "run.fit(model)\nrun.fit(model)",
            "model.fit(): is called a second time; train in one call, or in two jobs, of which one has the other's "
            "init_from",
        ),
        (
            "model.layers[1].trainable = False\nrun.fit(model)",
            "model.fit(): the model was frozen, unfrozen or given another optimizer or schedule after model(); do "
            "that in model()",
        ),
        (
            "model.optimizer.learning_rate = keras.optimizers.schedules.CosineDecay(0.1, 9)\nrun.fit(model)",
            "model.fit(): the model was frozen, unfrozen or given another optimizer or schedule after model(); do "
            "that in model()",
        ),
        (
            "model.compile(model.optimizer, 'mse')",
            "model.compile: compile, freeze and unfreeze in model(); train in two phases in two jobs, of which one has "
            "the other's init_from",
        ),
        (
            "run.fit(model, validation_steps=3)",
            "model.fit(validation_steps=3): is for validation_data; leave it out",
        ),
        *(
            (
                f"run.fit(model, validation_data=(model.get_weights()[0], model.get_weights()[0]), {name}={value})",
                f"model.fit({name}={value}): must be a whole number above 0",
            )
            for name, value in (
                ("validation_batch_size", "32.0"),
                ("validation_batch_size", -1),
                ("validation_steps", 2.5),
            )
        ),
        ("pass", "fit(model, run) has not trained the model; call model.fit(run.train)"),
    ],
)
def test_what_a_job_cannot_do_is_refused_with_the_fix(tmp_path: Path, text: str, message: str) -> None:
    job = job_of(tmp_path, text)
    with pytest.raises(UserError) as caught:
        fit(job)
    assert str(caught.value) == f"workload: {job.workload.name}: {message}"


def test_keras_itself_names_an_argument_that_it_does_not_know_and_another_model(tmp_path: Path) -> None:
    job = job_of(tmp_path, "run.fit(model, epoch=3)")
    with pytest.raises(UserError, match=r"mine.py:\d+: TypeError: got an unexpected keyword argument 'epoch'"):
        fit(job)
    with pytest.raises(
        UserError, match=r"run.train, which only the model that fit\(model, run\) was given can train on"
    ):
        fit(job_of(tmp_path, "keras.models.clone_model(model).fit(run.train)"))


def test_a_model_with_its_own_fit_is_refused(tmp_path: Path) -> None:
    class Own(keras.Sequential):  # type: ignore[misc]
        def fit(self, *_: Any) -> None:
            pass

    with pytest.raises(UserError, match=r"model\(\) gives a Own with its own fit\(\); rename it$"):
        fit(job_of(tmp_path), model=compiled(Own([keras.Input((2,)), keras.layers.Dense(1)])))


def test_a_model_that_is_not_compiled_is_refused(tmp_path: Path) -> None:
    job = job_of(tmp_path)
    Path(job.workload.name).write_text(MODEL.replace('made.compile("sgd", "sparse_categorical_crossentropy")', "pass"))
    with pytest.raises(UserError) as caught:
        state.build_state(setup({"worker": 1}, api="keras_fit", workload=job.workload.name))
    assert str(caught.value).endswith("model() must give a model that is compiled; call model.compile")


def test_after_sigterm_nothing_follows_fit(tmp_path: Path) -> None:
    text = "try:\n    run.fit(model)\n    1 / 0\nexcept Exception:\n    1 / 0\nfinally:\n    model.ended = True"
    model = compiled()
    assert fit(job_of(tmp_path, text), Loop(lambda: Trained(7, True, (0.0, 0))), model).stopped
    assert model.ended


def test_what_a_cluster_cannot_do_with_its_model_is_refused(tmp_path: Path) -> None:
    job = job_of(tmp_path, "model.evaluate([1.0])")
    two = setup({"worker": 2}, api="keras_fit", workload=job.workload.name)
    with pytest.raises(
        UserError, match=r"model.evaluate: the variables are those of a cluster; define evaluate\(model\)"
    ):
        fit(two)


def test_the_code_after_fit_has_the_weights_that_callbacks_have_restored(tmp_path: Path) -> None:
    model = compiled()
    best = {f"model.{i:03d}": np.full(v.shape, i + 0.5, np.float32) for i, v in enumerate(model.variables)}
    fit(
        job_of(tmp_path, "run.fit(model)"),
        Loop(lambda: Trained(9, False, (0.0, 0), "early", Replaced(best, "EarlyStopping"))),
        model,
    )
    assert [float(np.max(v)) for v in model.get_weights()] == [0.5, 1.5]


def failing(error: Exception) -> Loop:
    def does() -> Trained:
        raise error

    return Loop(does)


@pytest.mark.parametrize("text", ["run.fit(model)", "try:\n    run.fit(model)\nexcept Exception:\n    pass"])
@pytest.mark.parametrize("error", [RuntimeError("a defect"), TrainerError("it diverged", Exit.DIVERGED)])
def test_an_error_of_the_loop_is_as_without_fit(tmp_path: Path, text: str, error: Exception) -> None:
    """It is not at the line of the workload that calls fit, and the workload cannot hide it."""
    with pytest.raises(type(error)) as caught:
        fit(job_of(tmp_path, text), failing(error))
    assert caught.value is error
    assert not [entry for entry in caught.traceback if str(entry.path).endswith("mine.py")]


def test_an_error_of_the_workloads_fit_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"mine.py:\d+: ZeroDivisionError: division by zero"):
        fit(job_of(tmp_path, "run.fit(model)\n1 / 0"))


def test_in_a_callback_of_the_chief_weights_are_not_set_on_the_model_of_all(tmp_path: Path) -> None:
    """Only the chief calls it, so replicas would differ."""
    model = compiled()
    weights = model.get_weights()
    job = setup(
        {"worker": 2}, api="keras_fit", workload=job_of(tmp_path, "run.fit(model)\nmodel.set_weights([])").workload.name
    )

    def sets() -> Trained:
        model.set_weights(weights)
        raise AssertionError

    with pytest.raises(UserError, match=r"model.set_weights: in a callback the chief alone would have these weights"):
        fit(job, Loop(sets), model)


@pytest.mark.parametrize(
    "given", ["K.CallbackList([K.EarlyStopping('loss')])", "[[K.EarlyStopping('loss')]]", "K.EarlyStopping('loss')"]
)
def test_callbacks_may_be_nested_as_in_keras(tmp_path: Path, given: str) -> None:
    loop = Loop()
    fit(job_of(tmp_path, f"from keras import callbacks as K\nrun.fit(model, callbacks={given})"), loop)
    callbacks = loop.calls[0].workload.callbacks
    assert callbacks is not None
    found: Any = callbacks()
    assert [type(each).__name__ for each in found] == ["EarlyStopping", "History"]


CLASS_WEIGHT = {0: 0.5, 3: 2.0, 9: 0.1}


LABELS = np.arange(64) % 10
FORMS: dict[str, Any] = {
    "numbers": LABELS,
    "column": LABELS[:, None],
    "one-hot": np.eye(10)[LABELS],
    "one-hot bool": np.eye(10)[LABELS] > 0,
    "floats": LABELS + 0.1,
    "halves": LABELS + 0.5,
    "uint8": LABELS.astype("uint8"),
    "bool": LABELS % 3 == 0,
    "several of ten": np.random.default_rng(0).integers(0, 2, (64, 10)).astype("float32"),
    "soft": np.random.default_rng(1).random((64, 10)),
    "sequences of numbers": np.random.default_rng(2).integers(0, 10, (64, 5)),
}


@pytest.mark.parametrize("form", FORMS)
def test_class_weights_are_those_of_keras(tmp_path: Path, form: str) -> None:
    from keras.src.trainers.data_adapters.data_adapter_utils import class_weight_to_sample_weights

    y = FORMS[form]
    loop = Loop()
    fit(job_of(tmp_path, f"run.fit(model, class_weight={CLASS_WEIGHT})"), loop)
    assert loop.calls[0].class_weight == CLASS_WEIGHT
    source = inputs.Weighted(inputs.source((np.arange(64.0), y), "data('train')"), CLASS_WEIGHT)
    x, found, weights = next(iter(source.batches(inputs.Part(32, start=1))))
    np.testing.assert_array_equal(found, y[x.numpy().astype(int)])
    np.testing.assert_array_equal(weights, class_weight_to_sample_weights(found, CLASS_WEIGHT))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            (np.ones(4), np.ones(4), np.ones(4)),
            "data(shard) gives sample weights; multiply them there, and leave it out",
        ),
        (np.ones(4), "is for a model with one output, whose labels are one array"),
        ((np.ones(4), np.array(["a", "b", "a", "b"])), "labels are text; give class numbers in data(shard)"),
        (
            (np.ones(4), {"a": np.ones(4), "b": np.ones(4)}),
            "is for a model with one output, whose labels are one array",
        ),
    ],
    ids=["weights", "no labels", "text", "two outputs"],
)
def test_class_weights_need_one_array_of_labels(data: Any, message: str) -> None:
    source = inputs.Weighted(inputs.source(data, "data('train')"), CLASS_WEIGHT)
    with pytest.raises(UserError) as caught:
        source.batches(inputs.Part(2))
    assert str(caught.value) == f"workload: model.fit(class_weight=...): {message}"


@pytest.mark.parametrize("form", ["one-hot", "column"])
def test_each_position_of_a_sequence_is_weighted_as_that_of_a_dataset_in_keras(form: str) -> None:
    from keras.src.trainers.data_adapters.tf_dataset_adapter import make_class_weight_map_fn

    numbers = np.random.default_rng(0).integers(0, 10, (8, 5))
    y = np.eye(10)[numbers] if form == "one-hot" else numbers[..., None]
    source = inputs.Weighted(inputs.source((np.arange(8.0), y), "data('train')"), CLASS_WEIGHT)
    x, found, weights = next(iter(source.batches(inputs.Part(8, start=1))))
    assert weights.shape == (8, 5)
    np.testing.assert_array_equal(weights, make_class_weight_map_fn(CLASS_WEIGHT)(x, found)[2])


def test_a_width_that_is_not_known_may_be_one() -> None:
    dataset = tf.data.Dataset.from_generator(
        lambda: iter([([1.0], [3.0]), ([2.0], [1.0])]),
        output_signature=(tf.TensorSpec([1]), tf.TensorSpec([None])),
    )
    source = inputs.Weighted(inputs.source(dataset, "data('train')"), CLASS_WEIGHT)
    assert next(iter(source.batches(inputs.Part(2))))[2].numpy().tolist() == [2, 1]


def test_each_ps_worker_weighs_its_own_part() -> None:
    x = np.arange(64, dtype=np.float32)
    job = with_data(
        setup({"worker": 2, "ps": 1}, train={"batch_size": 4}),
        lambda shard: tf.data.Dataset.from_tensor_slices((x, x % 4)).shard(shard.count, shard.index),
    ).with_fit(list, None, CLASS_WEIGHT)

    @tf.function(autograph=False)
    def first(worker: Any) -> Any:
        return next(iter(job.training_of(worker).batches(job.part)))

    assert [part.numpy().tolist() for part in first(tf.constant(1, tf.int64))] == [
        [1, 3, 5, 7],
        [1, 3, 1, 3],
        [1, 2, 1, 2],
    ]


def test_data_are_read_once(tmp_path: Path) -> None:
    job = job_of(tmp_path, "run.fit(model, class_weight={1: 2.0})")
    read = []
    path = Path(job.workload.name)
    path.write_text(
        path.read_text().replace(
            'DATASET = "digits"',
            "READ = []\nimport numpy as np\ndef data(shard):\n"
            "    READ.append(shard)\n    return np.ones((128, 8, 8)), np.ones(128)",
        )
    )
    job = setup({"worker": {"cpu_devices": 2}}, api="keras_fit", workload=str(path))
    loop = Loop()
    fit(job, loop)
    read = job.workload.data.__globals__["READ"]  # type: ignore[union-attr]
    loop.calls[0].training.batches(loop.calls[0].part)
    assert [shard.split for shard in read] == ["train"]
    require_data_to_evaluate(loop.calls[0], job.workload.model())  # as the loop does
    assert job.evaluation() is not None
    assert [shard.split for shard in read] == ["train", "test"]


OWN_STEP = """
import keras
DATASET = "digits"
class Own(keras.Model):
    def __init__(self):
        super().__init__()
        self.last = keras.layers.Dense(10)
    def call(self, x):
        return self.last(keras.ops.reshape(keras.ops.cast(x, "float32"), (-1, 64)))
    def train_step(self, batch):
        return {"loss": 0.0}
def model():
    made = Own()
    made(keras.ops.zeros((1, 8, 8)))
    made.compile("sgd", loss=LOSS)
    return made
"""


@pytest.mark.parametrize(("loss", "figures"), [("None", set()), ("'sparse_categorical_crossentropy'", {"loss"})])
def test_a_model_of_own_steps_is_evaluated_only_if_it_has_a_loss(tmp_path: Path, loss: str, figures: set[str]) -> None:
    path = tmp_path / "own.py"
    path.write_text(OWN_STEP.replace("LOSS", loss))
    job = setup({"worker": 1}, api="keras_fit", workload=str(path))
    assert evaluation.score(job, job.workload.model()).keys() == figures


def test_the_default_fit_takes_the_callbacks_of_the_workload(tmp_path: Path) -> None:
    job, loop = job_of(tmp_path), Loop()
    own = keras.callbacks.EarlyStopping("loss")
    fit(replace(job, workload=replace(job.workload, callbacks=lambda: [own])), loop)
    made = loop.calls[0].workload.callbacks
    assert made is not None
    assert next(iter(made())) is own  # type: ignore[call-overload]


def test_callbacks_beside_fit_are_refused(tmp_path: Path) -> None:
    job = job_of(tmp_path, "run.fit(model)")
    with pytest.raises(UserError, match=r"has callbacks\(\) and fit\(\); pass the callbacks to model.fit"):
        fit(replace(job, workload=replace(job.workload, callbacks=list)))
