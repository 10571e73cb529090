"""The exports are loaded again and compared with the trained model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training import jobs
from trainer import host
from trainer.job.load import build
from trainer.training.outputs import exports, reload, reloaded
from trainer.training.task import TrainingTask
from trainer.workloads.load import load_workload
from trainer.workloads.workload import Shard

pytestmark = [
    pytest.mark.part("training"),
    pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning"),
]

HEAD = """
import keras
import numpy as np
import tensorflow as tf

def data(shard):
    return np.random.default_rng(1).normal(size=(20, 4)).astype("float32"), np.zeros(20, "int32")

def dense(*layers):
    return keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(3)])
"""
GATE = """
class Gate(keras.layers.Layer):
    def __init__(self, power, **more):
        super().__init__(**more)
        self.power = power
    def call(self, x):
        return x ** self.power
    def get_config(self):
        return {**super().get_config(), "power": self.power}
def model():
    return dense(Gate(3))
"""
FORGETS = """
@keras.saving.register_keras_serializable()
class Forgets(keras.layers.Layer):
    def __init__(self, power=2, **more):
        super().__init__(**more)
        self.power = power
    def call(self, x):
        return x ** self.power
    def get_config(self):
        return super().get_config()
def model():
    return dense(Forgets(3))
"""
SUBCLASSED = """
class Net(keras.Model):
    def __init__(self, **more):
        super().__init__(**more)
        self.head = keras.layers.Dense(3)
    def call(self, x):
        return self.head(x)
def model():
    net = Net()
    net(np.zeros((1, 4), "float32"))
    return net
"""
COMPILED = """
def mine(y, p):
    return keras.losses.sparse_categorical_crossentropy(y, p, from_logits=True)
def model():
    made = dense()
    made.compile("sgd", mine)
    return made
"""
BENT = """
def bent(x):
    return x * tf.sigmoid(2.0 * x)
def model():
    made = dense(keras.layers.Dense(4, activation=bent))
    made.compile("sgd", keras.losses.mean_squared_error)
    return made
"""
REGISTERED = "@keras.saving.register_keras_serializable('mine')"
DEFINED_WITHIN = """
def model():
    class Local(keras.layers.Layer):
        def call(self, x):
            return x
    return dense(Local())
"""


def job_of(folder: Path, source: str, name: str = "wl") -> TrainingTask:
    path = folder / f"{name}.py"
    path.write_text(HEAD + source)
    spec = {"name": "j", "strategy": "one_device", "workload": str(path), "model_dir": str(folder / "run")}
    job = build(spec)
    return replace(jobs.setup(), spec=job, workload=load_workload(job), arrays=None)


def checked(job: TrainingTask, model: Any = None) -> dict[str, str]:
    """The verdicts of the same functions as in the process, in this one."""
    model = model or job.workload.model()
    failed = exports.export(model, job.spec.directory)
    folder = Path(job.spec.directory) / "reload"
    folder.mkdir(exist_ok=True)
    reload.write_request(folder, job, {name: model for name in exports.NAMES if name not in failed})
    keras.saving.get_custom_objects().clear()  # as in a new process
    reloaded.check(folder, job.spec)
    verdicts: dict[str, str] = json.loads((folder / "verdicts.json").read_text())
    return {**dict.fromkeys(failed, "cannot be written"), **verdicts}


CASES = {
    "plain": ("def model():\n    return dense()", "equal", "equal"),
    "unregistered": (
        GATE,
        "equal, only with custom_objects for Gate: put @keras.saving.register_keras_serializable() before it in the "
        "workload file",
        "equal",
    ),
    "registered": (
        GATE.replace("class Gate", f"{REGISTERED}\nclass Gate"),
        "equal, only after import of {workload}, which registers Gate",
        "equal",
    ),
    "forgets": (
        FORGETS,
        "differs: the output differs by up to ",
        "equal",
    ),
    "subclassed": (
        SUBCLASSED,
        "equal, only with custom_objects for Net: put @keras.saving.register_keras_serializable() before it in the "
        "workload file",
        "equal",
    ),
    "compiled": (
        COMPILED,
        "equal, only with compile=False: its loss, metrics or optimizer are not Keras' own",
        "equal",
    ),
    "no_more": (
        SUBCLASSED.replace(", **more", "").replace("**more", ""),
        "cannot be loaded: TypeError: Net.__init__() got an unexpected keyword argument 'trainable'",
        "equal",
    ),
    "function": (
        f"from keras.losses import mean_squared_error\n{BENT}",
        "equal, only with custom_objects for bent: put @keras.saving.register_keras_serializable() before it in the "
        "workload file",
        "equal",
    ),
    "registered_function": (
        BENT.replace("def bent", f"{REGISTERED}\ndef bent"),
        "equal, only after import of {workload}, which registers bent",
        "equal",
    ),
    "within": (DEFINED_WITHIN, "cannot be loaded: Could not locate class 'Local'.", "equal"),
    "unwritable": (GATE.partition("    def get_config")[0].replace("self.power = power", "self.power = np.array(power)")
                   + "def model():\n    return dense(Gate(np.array(3)))", "cannot be written", "equal"),
    "lambda": (
        "def model():\n    return dense(keras.layers.Lambda(lambda x: x * 2))",
        "equal, only with safe_mode=False: a Lambda layer is Python code",
        "equal",
    ),
    "random": (
        "def model():\n    i = keras.Input((4,))\n"
        "    return keras.Model(i, keras.layers.Dropout(0.5, name='noisy')(i, training=True))",
        "equal",
        "equal",  # called with training=False, as by predict
    ),
    "augments": (
        "def model():\n    noise = keras.layers.RandomTranslation(0.4, 0.4)\n"
        "    return dense(keras.layers.Reshape((2, 2, 1)), noise, keras.layers.Flatten())",
        "equal",
        "equal",  # its call has training=True by default
    ),
    "random_by_call": (
        SUBCLASSED.replace("Dense(3)", "GaussianNoise(1, name='noise')").replace("head(x)", "head(x, training=True)"),
        "random at inference: two calls differ, so it is not compared; loaded, only with "
        "custom_objects for Net: put @keras.saving.register_keras_serializable() before it in the workload file",
        "random at inference: two calls differ, so it is not compared; loaded",
    ),
    "lambda_and_class": (
        GATE.replace("dense(Gate(3))", "dense(Gate(3), keras.layers.Lambda(lambda x: x * 2))"),
        "equal, only with custom_objects for Gate: put @keras.saving.register_keras_serializable() before it in the "
        "workload file, and with safe_mode=False: a Lambda layer is Python code",
        "equal",
    ),
    "half": ("def model():\n    return dense(keras.layers.Dense(4, dtype='mixed_float16'))", "equal", "equal"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_verdict_tells_what_it_takes_to_load_an_export_and_whether_it_is_the_trained_model(
    tmp_path: Path, case: str
) -> None:
    source, keras_file, saved_model = CASES[case]
    job = job_of(tmp_path, source, f"wl_{case}")
    verdicts = checked(job)
    wanted = keras_file.format(workload=job.spec.workload)
    assert verdicts["saved_model"] == saved_model
    assert verdicts["model.keras"] == wanted or (
        wanted.endswith((" ", ".", "written")) and wanted in verdicts["model.keras"]
    )


def test_a_module_of_the_users_is_not_keras_because_its_name_begins_so(tmp_path: Path) -> None:
    (tmp_path / "keras_parts.py").write_text(f"import keras\n{GATE.partition('def model')[0]}")
    job = job_of(tmp_path, "from keras_parts import Gate\ndef model():\n    return dense(Gate(3))", "wl_parts")
    assert checked(job)["model.keras"].startswith("equal, only with custom_objects for Gate: put ")
    source = Path(job.spec.workload).read_text().replace("import Gate", "import Gate\nGate = register(Gate)")
    register = "def register(each):\n    return keras.saving.register_keras_serializable('mine')(each)\n"
    job = job_of(tmp_path, register + source.removeprefix(HEAD), "wl_registered_parts")
    assert checked(job)["model.keras"] == f"equal, only after import of {job.spec.workload}, which registers Gate"


MAKING = """
def making(activation):
    def model():
        return dense(keras.layers.Dense(4, activation=activation))
    return model
"""
ELSEWHERE = {
    "a partial": (f"import functools\n{BENT}\nmodel = functools.partial(model)\n", ""),
    "a model of another module": (
        "from {parts} import making\n" + BENT.partition("def model")[0] + "model = making(bent)\n",
        HEAD + MAKING,
    ),
    "a function of another module": ("import {parts}\ndef model():\n    return {parts}.model()\n", HEAD + BENT),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_a_function_is_found_in_any_module_of_the_workload(tmp_path: Path, case: str) -> None:
    source, parts = ELSEWHERE[case]
    name = f"wl_{case.replace(' ', '_')}"
    (tmp_path / f"{name}_parts.py").write_text(parts)
    verdict = checked(job_of(tmp_path, source.format(parts=f"{name}_parts"), name))["model.keras"]
    assert verdict.startswith("equal, only with custom_objects for bent: put ")


def with_x(x: Any, inputs: Any, output: Any, tmp_path: Path) -> dict[str, str]:
    def data(shard: Shard) -> Any:
        return tf.data.Dataset.from_tensor_slices((x, np.zeros(len(tf.nest.flatten(x)[0]), "int32")))

    job = jobs.with_data(jobs.with_workload(model=lambda: keras.Model(inputs, output)), data)
    job = replace(job, spec=job.spec.model_copy(update={"model_dir": str(tmp_path)}))
    return checked(job)


def test_inputs_of_all_kinds_are_compared(tmp_path: Path) -> None:
    layers, rng, both = keras.layers, np.random.default_rng(0), {"model.keras": "equal", "saved_model": "equal"}
    words = keras.Input((1,), dtype="string", name="words")
    numbers = keras.Input((3,), name="numbers")
    lookup = layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")
    joined = layers.Concatenate()([lookup(words), numbers])
    x: Any = {"numbers": rng.normal(size=(9, 3)).astype("float64"), "words": np.array([["a"], ["b"], ["z"]] * 3)}
    # By name; as a list in the order of the inputs; with outputs by name; without the last dimension of 1.
    assert with_x(x, {"words": words, "numbers": numbers}, layers.Dense(2)(joined), tmp_path / "1") == both
    assert with_x(x, [words, numbers], layers.Dense(2)(joined), tmp_path / "2") == both
    assert with_x((x["words"], x["numbers"]), [words, numbers], {"o": joined, "p": numbers}, tmp_path / "3") == both
    image = keras.Input((4, 4, 1))
    assert with_x(rng.integers(0, 9, (9, 4, 4)), image, layers.Conv2D(2, 3)(image), tmp_path / "4") == both


def test_inputs_by_name_do_not_depend_on_the_order_of_a_signature() -> None:
    specs = {name: tf.TensorSpec([None, 1], dtype, name) for name, dtype in (("b", "float32"), ("a", "string"))}
    given = reloaded.as_asked(specs, {"a": tf.constant([["x"]]), "b": tf.constant([[1]]), "c": tf.constant([0])})
    assert {name: part.dtype.name for name, part in given.items()} == {"a": "string", "b": "float32"}


def test_what_has_no_test_split_is_loaded_and_not_compared(tmp_path: Path) -> None:
    job = jobs.with_data(jobs.with_workload(model=lambda: jobs.network(keras.layers.Dense(2))), lambda shard: None)
    job = replace(job, spec=job.spec.model_copy(update={"model_dir": str(tmp_path)}))
    why = "loaded, not compared: no batch of the test split: UserError: "
    assert all(verdict.startswith(why) for verdict in checked(job).values())


# The process. -------------------------------------------------------------------------------------


class Going:
    """A channel of a job that nobody stops."""

    def __init__(self) -> None:
        import threading

        self.stopping = threading.Event()


@pytest.fixture
def exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainingTask:
    job = job_of(tmp_path, GATE)
    monkeypatch.setenv("TRAINER_JOB", job.spec.model_dump_json())
    exports.export(job.workload.model(), job.spec.directory)
    return job


def test_a_new_process_loads_the_exports(exported: TrainingTask) -> None:
    model = exported.workload.model()
    exports.export(model, exported.spec.directory)
    reloading = reload.Reloading(exported, 100)
    verdicts = reloading.verdicts(dict.fromkeys(exports.NAMES, model), Going())  # type: ignore[arg-type]
    assert verdicts["saved_model"] == "equal"
    assert verdicts["model.keras"].startswith("equal, only with custom_objects for Gate")
    assert [path.name for path in Path(exported.spec.directory).iterdir()] == ["export"]


def test_the_coarsest_type_that_a_layer_computes_in_decides_what_is_equal() -> None:
    half = keras.layers.Dense(2, dtype="mixed_float16")
    inner = keras.Sequential([keras.Input((4,)), half])
    outer = keras.Sequential([keras.Input((4,)), inner, keras.layers.Dense(1, dtype="float32")])
    assert reload.tolerance(outer) == 1e-2
    assert reload.tolerance(keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])) == 1e-4


def test_the_job_does_not_wait_for_it_for_ever(exported: TrainingTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reload, "CHECK_SECONDS", 0.1)
    reloading = reload.Reloading(exported, 100)
    verdicts = reloading.verdicts({"model.keras": exported.workload.model()}, Going())  # type: ignore[arg-type]
    assert verdicts == {"model.keras": "not checked: it takes longer than 0.1 s"}
    going = Going()
    going.stopping.set()
    verdicts = reload.Reloading(exported, 100).verdicts({"model.keras": exported.workload.model()}, going)  # type: ignore[arg-type]
    assert verdicts == {"model.keras": "not checked: the job was stopped"}


def test_it_is_not_started_where_memory_would_run_out(exported: TrainingTask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "free_memory", lambda: 400 << 20)
    reloading = reload.Reloading(exported, 100 << 20)
    assert reloading.verdicts({"saved_model": None}, Going()) == {  # type: ignore[arg-type]
        "saved_model": "not checked: it takes 1120 MiB of memory, and 400 are free; raise tasks.worker.memory"
    }
    spec = exported.spec.model_copy(update={"check_exports": False})
    silent = reload.Reloading(replace(exported, spec=spec), 100)
    assert silent.verdicts({"saved_model": None}, Going()) == {  # type: ignore[arg-type]
        "saved_model": "not checked: check_exports is false"
    }


def test_an_export_that_was_changed_is_not_loaded(exported: TrainingTask, tmp_path: Path) -> None:
    """Others may write to model_dir, and what is loaded can be code."""
    request = tmp_path / "request"
    request.mkdir()
    reload.write_request(request, exported, dict.fromkeys(exports.NAMES, exported.workload.model()))
    export = Path(exported.spec.directory) / "export"
    (export / "model.keras").write_bytes(b"another one")
    (export / "saved_model" / "more.txt").write_text("x")
    reloaded.check(request, exported.spec)
    verdicts = json.loads((request / "verdicts.json").read_text())
    assert verdicts == dict.fromkeys(exports.NAMES, "was changed after the job had written it")
