"""User errors whose last frame is in Keras or TensorFlow."""

import runpy
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from trainer.job.errors import Exit, TrainerError, UserError
from trainer.job.load import build
from trainer.training.private import keras_patches, keras_private
from trainer.training.private.tensorflow_private import as_written
from trainer.training.runtime import created_variables, user_code
from trainer.workloads import load
from trainer.workloads.load import load_workload
from trainer.workloads.locate import python_error
from trainer.workloads.workload import SHARD, Shard


def reported(function: Any, y: Any, prediction: Any, name: str = "mine.py") -> str:
    with pytest.raises(UserError) as caught:
        tf.function(user_code.called(name, "loss", function), autograph=False)(y, prediction)
    return str(caught.value)


# Each: a loss, shapes and dtype of y, shape of the prediction, and the end of the message.
LOSSES: list[tuple[Any, tuple[int, ...], Any, tuple[int, ...], str]] = [
    (keras.losses.binary_crossentropy, (7,), tf.uint8, (7, 1), "give y a last dimension of 1 in data(): y[..., None]"),
    (keras.losses.sparse_categorical_crossentropy, (7, 4, 1), tf.int32, (7, 4), "prediction: float32 (7, 4)"),
    (tf.nn.sparse_softmax_cross_entropy_with_logits, (7, 4), tf.int64, (7, 4), "y.argmax(-1), or loss()"),
    (tf.nn.sparse_softmax_cross_entropy_with_logits, (7, 1), tf.int64, (7, 4), "in data(): y[..., 0]"),
    (
        tf.nn.sparse_softmax_cross_entropy_with_logits,
        (7,),
        tf.string,
        (7, 4),
        "labels are text: give numbers in data()",
    ),
    (lambda y, p: tf.gather(p, tf.cast(y, tf.float32)), (7,), tf.int64, (7, 4), "prediction: float32 (7, 4)"),
    (lambda y, p: None, (7,), tf.int64, (7, 4), "prediction: float32 (7, 4)"),
]


@pytest.mark.parametrize(("loss", "shape", "dtype", "outputs", "end"), LOSSES)
def test_a_loss_that_does_not_fit_is_reported_with_both_shapes(
    loss: Any, shape: tuple[int, ...], dtype: Any, outputs: tuple[int, ...], end: str
) -> None:
    y = tf.fill(shape, "a") if dtype == tf.string else tf.zeros(shape, dtype)
    text = reported(loss, y, tf.zeros(outputs))
    assert text.startswith("workload: mine.py: loss(y, prediction): ")
    assert f"; y: {tf.as_dtype(dtype).name} {shape}, prediction: float32 {outputs}".replace(",)", ",)") in text
    assert text.endswith(end)
    assert "\n" not in text


def test_a_line_of_user_code_is_reported_before_the_shapes(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import keras\nDATASET = 'digits'\ndef model(): pass\ndef loss(y, p):\n"
        "    return keras.losses.binary_crossentropy(y, p)\n"
    )
    spec = build({"name": "j", "strategy": "one_device", "workload": str(path)})
    text = reported(load_workload(spec).loss, tf.zeros([3]), tf.zeros([3, 1]), str(path))
    assert text.startswith(f"workload: {path}:5: ValueError: Arguments `target` and `output` must have the same rank")
    assert "; y: float32 (3,), prediction: float32 (3, 1); give y a last dimension" in text


def test_data_that_look_the_shard_up_are_told_what_it_is() -> None:
    with pytest.raises(UserError) as caught, user_code.calling("m.py", "data('train')"):
        {"train": 1}[Shard("train")]  # type: ignore[index]
    assert str(caught.value).endswith(f"; {SHARD}")


def test_data_of_another_file_that_take_nothing_are_told_what_they_get() -> None:
    def data() -> None: ...

    with pytest.raises(UserError) as caught, user_code.calling("m.py", "data('train')"):
        data(Shard("train"))  # type: ignore[call-arg]
    assert "takes 0 positional arguments but 1 was given" in str(caught.value)
    assert str(caught.value).endswith(f"; {SHARD}")


@pytest.mark.parametrize(
    "error",
    [
        TrainerError("x", Exit.DIVERGED),
        tf.errors.UnavailableError(None, None, "Connection reset by peer"),
        tf.errors.AbortedError(None, None, "x"),
        OSError(28, "No space left on device", "x"),
    ],
)
def test_errors_reported_elsewhere_pass_unchanged(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, user_code.calling("mine.py", "model()"):
        raise error
    assert caught.value is error


GRAPHS = """import tensorflow as tf
DATASET = 'digits'
def model(): pass
def gathers(x):
    y = tf.cast(x, tf.int32)
    return tf.gather([1, 2, 3], y)
def casts(x):
    return tf.cast(tf.strings.as_string(x), tf.int32)
"""


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gathers", ":6: InvalidArgumentError: indices[0] = 4 is not in [0, 3)"),
        (
            "casts",
            ":8: UnimplementedError: Cast string to int32 is not supported; "
            "text must become numbers, in data() or by a layer such as StringLookup",
        ),
    ],
)
def test_an_operation_that_fails_in_a_graph_is_reported_with_the_line_that_created_it(
    tmp_path: Path, name: str, said: str
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(GRAPHS)
    module: Any = load._import(build({"name": "j", "strategy": "one_device", "workload": str(path)}))
    with pytest.raises(tf.errors.OpError) as caught:
        tf.function(getattr(module, name), autograph=False)(tf.constant([4.0]))
    assert user_code.graph_error(caught.value, str(path)) == f"workload: {path}{said}"
    assert (user_code.graph_error(caught.value, "digits") or "").startswith("workload: digits: a step: ")


def test_a_label_without_an_output_unit_is_reported_with_the_fix() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        tf.function(tf.nn.sparse_softmax_cross_entropy_with_logits)(labels=np.array([0, 12]), logits=tf.zeros([2, 10]))
    text = user_code.graph_error(caught.value, "mine.py")
    assert text is not None
    assert text.startswith("workload: mine.py: a step: InvalidArgumentError: Received a label value of 12 which is")
    assert text.endswith("the last layer has 10 units, so labels must be below 10: give it more units, or other labels")


def test_a_label_below_0_is_reported_with_the_fix() -> None:
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        tf.function(tf.nn.sparse_softmax_cross_entropy_with_logits)(labels=np.array([0, -1]), logits=tf.zeros([2, 10]))
    text = user_code.graph_error(caught.value, "mine.py") or ""
    assert text.endswith(
        "labels must be at least 0, and below 10, since the last layer has 10 units: add to them in data()"
    )


# Each: a loss of Keras, the shape and type of y, that of the prediction, and the fix.
SHAPES: list[tuple[str, Any, tuple[int, ...], str]] = [
    (
        "sparse_categorical_crossentropy",
        np.eye(3)[[0, 1, 2, 0]],
        (4, 3),
        "y seems to be one-hot: give class numbers in",
    ),
    (
        "categorical_crossentropy",
        np.arange(4),
        (4, 5),
        "y seems to hold class numbers: compile sparse_categorical_cros",
    ),
    ("categorical_crossentropy", np.eye(4), (4, 3), "y has 4 values in its last dimension, and the last layer 3 units"),
    ("binary_crossentropy", np.arange(4), (4, 2), "y seems to hold class numbers: compile sparse_categorical_crossent"),
]


@pytest.mark.parametrize(("loss", "y", "shape", "fix"), SHAPES)
def test_labels_of_another_form_than_the_loss_takes_are_reported_with_the_fix(
    loss: str, y: Any, shape: tuple[int, ...], fix: str
) -> None:
    with pytest.raises(UserError) as caught, user_code.calling("mine.py", "model.compile"):
        keras.losses.get(loss)(y, tf.zeros(shape))
    assert f"; {fix}" in str(caught.value)


def test_data_without_y_are_reported_with_the_fix() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    model.compile(loss="mse", metrics=["accuracy"])
    with pytest.raises(UserError, match=r"; the data may be x alone: give \(x, y\)"), user_code.calling("m.py", "fit"):
        keras_private.build_compiled(model, (keras.KerasTensor((4, 2)),))


def test_examples_that_are_dicts_are_reported_with_the_fix() -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    with pytest.raises(UserError, match=r"; x must have the structure .*\(each\['x'\], each\['y'\]\)"):  # noqa: SIM117
        with user_code.calling("m.py", "model(x)"):
            model({"x": tf.zeros((4, 2)), "y": tf.zeros((4,))})


def test_an_example_of_unknown_shape_is_reported_with_the_fix() -> None:
    @tf.function(input_signature=[tf.TensorSpec(None)], autograph=False)
    def call(x: Any) -> Any:
        return keras.Sequential([keras.layers.Dense(2)])(x)

    with pytest.raises(UserError, match=r"call x\.set_shape"), user_code.calling("mine.py", "model(x)"):
        call(tf.zeros((2, 3)))


def test_variables_that_a_layer_creates_in_a_step_are_reported_with_the_fix() -> None:
    class Marked(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense, self.built = keras.layers.Dense(1), True

        def call(self, x: Any) -> Any:
            return self.dense(x)

    model = Marked()

    @tf.function(autograph=False)
    def step() -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(model(tf.ones((2, 3))))
        return tape.gradient(loss, model.trainable_variables)

    with (
        keras_patches.hold([], []),
        pytest.raises(UserError, match=r"a layer creates its variables within a step, .* call it once in model\(\)"),
        user_code.calling("mine.py", "model.train_step"),
    ):
        step()


def test_a_cache_file_that_is_in_use_or_left_of_a_killed_task_is_reported_with_the_fix(tmp_path: Path) -> None:
    cached = tf.data.Dataset.range(4).cache(str(tmp_path / "cache"))
    begun = iter(cached)
    next(begun)
    with pytest.raises(tf.errors.AlreadyExistsError) as caught:
        next(iter(cached))
    text = user_code.graph_error(caught.value, "mine.py") or ""
    assert f"delete {tmp_path}/cache*, and give each task a file of its own, as cache(tf.strings.format('..-" in text
    assert next(begun).numpy() == 1


def test_python_in_a_step_of_parameter_server_is_reported_with_the_fix() -> None:
    """As TensorFlow 2.21 says it of a server without Python."""
    text = (
        "No OpKernel was registered to support Op 'EagerPyFunc' used by {{node while/body/_1/EagerPyFunc}} "
        'with these attrs: [Tout=[DT_FLOAT], token="pyfunc_1", is_async=false, Tin=[DT_FLOAT]]\n'
        "Registered devices: [CPU]\nRegistered kernels:\n  <no registered kernels>\n\n"
        "\t [[while/body/_1/gradient_tape/EagerPyFunc]] [Op:__inference_fn_12]"
    )
    shown = user_code.graph_error(tf.errors.InvalidArgumentError(None, None, text), "mine.py")
    assert shown == (
        "workload: mine.py: a step: InvalidArgumentError: No OpKernel was registered to support Op 'EagerPyFunc'; "
        "py_function runs Python, which the workers of parameter_server do not in a step: write it with TensorFlow "
        "operations, or use multi_worker_mirrored"
    )


def test_data_that_end_before_the_first_example_are_reported_with_the_fix() -> None:
    with pytest.raises(tf.errors.OutOfRangeError) as caught:
        tf.function(lambda it: next(it))(iter(tf.data.Dataset.range(4).filter(lambda n: n > 9).repeat()))
    text = user_code.graph_error(caught.value, "mine.py") or ""
    assert "End of sequence; data('train') gives this task no examples: give each task some" in text


def test_an_initializer_that_fails_is_an_error_of_the_users(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import keras\nDATASET = 'digits'\n"
        "def model(): keras.Sequential([keras.Input((2, 3)), keras.layers.LSTM(4, dtype='bfloat16')])\n"
    )
    model = load_workload(build({"name": "j", "strategy": "one_device", "workload": str(path)})).model
    with (
        pytest.raises(UserError, match=r"mine\.py:3: InvalidArgumentError: Value for attr 'T' of bfloat16"),
        user_code.calling(str(path), "model()"),
        created_variables.Created().noting(),
    ):
        model()


def test_the_scope_of_a_strategy_at_the_top_of_the_file_is_reported_with_the_fix() -> None:
    default, own = tf.distribute.get_strategy(), tf.distribute.OneDeviceStrategy("/cpu:0")
    with (
        pytest.raises(UserError, match=r"Must not nest .*; the job calls model\(\) in the scope of its own s"),
        user_code.calling("mine.py", "model()"),
        own.scope(),
        default.scope(),
    ):
        pass


def test_errors_that_a_lost_peer_may_cause_are_none_of_a_graph() -> None:
    assert user_code.graph_error(tf.errors.UnavailableError(None, None, "x"), "mine.py") is None
    assert user_code.graph_error(tf.errors.InternalError(None, None, "x"), "mine.py") is None
    assert user_code.graph_error(ValueError("x"), "mine.py") is None


def test_of_several_root_errors_the_first_is_reported_without_the_text_that_grpc_adds() -> None:
    text = (
        "Graph execution error:\n\n2 root error(s) found.\n  (0) INVALID_ARGUMENT:  Received a label value of 12\n"
        "Additional GRPC error information from remote target /job:worker/replica:0/task:1:\n:UNKNOWN:Error\n"
        "  (1) CANCELLED:  Function was cancelled before it was started\n0 successful operations."
    )
    assert user_code.essence(text) == "Received a label value of 12"
    assert user_code.essence("Received a label value of 12") == "Received a label value of 12"
    text = "<stack traces unavailable>\nTensor had Inf values\n\t [[while/body/_1/IteratorGetNext]] [Op:__inference_3]"
    assert user_code.essence(text) == "Tensor had Inf values"


@pytest.mark.parametrize("word", ["a", "word", "x" * 50])
def test_an_error_that_is_long_is_cut_between_words(word: str) -> None:
    short = user_code.essence(f"{word} " * 300)
    assert 240 < len(short) <= 300
    assert set(short.split()) == {word, "..."}
    assert user_code.essence("x" * 400) == f"{'x' * 296} ..."


def test_an_error_of_keras_is_reported_without_the_layer_that_passed_it_on() -> None:
    layer = keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)])
    with pytest.raises(UserError) as raised, user_code.calling("mine.py", "model(x)"):
        layer(np.ones((3, 4), "float32"))
    text = str(raised.value)
    assert text.startswith("workload: mine.py: model(x): ValueError: Input 0 ")
    assert "(3, 4)" in text
    assert "Arguments received" not in text


@pytest.mark.parametrize(
    ("second", "wrong"),
    [
        ((np.ones(3), 1), "of shape (3,) where an element of shape (2,) was expected; each must be as"),
        ((np.ones(2), "a"), "was a; each must be as the output_signature of from_generator"),
        (
            np.ones(2),
            "structure was (tf.float32, tf.int64), but the yielded element was [1. 1.]; each must be",
        ),
    ],
)
def test_a_generator_that_yields_something_else_than_its_signature_is_reported(second: Any, wrong: str) -> None:
    """Keras reads it within `calling`, as in an evaluation; the loops do outside."""
    signature = tf.TensorSpec([2]), tf.TensorSpec([], tf.int64)
    dataset = tf.data.Dataset.from_generator(lambda: iter([(np.ones(2), 1), second]), output_signature=signature)
    with pytest.raises(UserError) as caught, user_code.calling("my.py", "model.evaluate"):
        list(dataset.batch(2))
    assert str(caught.value).startswith("workload: my.py: TypeError: `generator` yielded an element")
    assert wrong in str(caught.value)
    assert python_error(str(caught.value.__cause__), "my.py") == str(caught.value)


def test_examples_of_different_shapes_in_one_batch_are_reported_with_the_fix() -> None:
    lengths = tf.data.Dataset.range(1, 3).map(lambda n: tf.zeros([n])).batch(2)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        next(iter(lengths))
    text = user_code.graph_error(caught.value, "mine.py")
    assert text is not None
    assert "pad or cut them, in parse() or data(), to one length by tf.pad" in text


TRANSLATED = """import tensorflow as tf


def data():
    def parse(x):
        def read(value):
            if value > 1:
                raise KeyError("colour")
            return value

        return tf.numpy_function(read, [x], tf.int64)

    return tf.data.Dataset.range(4).map(parse)
"""


def test_an_error_in_a_function_that_autograph_has_translated_is_reported_with_its_own_line(tmp_path: Path) -> None:
    (file := tmp_path / "mine.py").write_text(TRANSLATED)
    names = runpy.run_path(str(file))
    with pytest.raises(tf.errors.OpError) as caught:
        list(names["data"]())
    assert python_error(as_written(str(caught.value)), str(file)) == f"workload: {file}:8: KeyError: 'colour'"
