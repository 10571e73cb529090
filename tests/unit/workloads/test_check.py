import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit.workloads.files import CONTRACT, MODEL, file, problem, spec_of
from trainer.cli.describe import describe
from trainer.job.errors import UserError
from trainer.job.messages import RELATIVE
from trainer.workloads import workload
from trainer.workloads.check import check_workload, own_optimizer


@pytest.mark.parametrize("name", workload.MODELS)
def test_our_own_are_fine(name: str) -> None:
    check_workload(spec_of(name))


# Each: a file that holds all it must.
FINE = [
    MODEL + "DATASET = 'digits'",
    MODEL + "DATASET: str = 'digits'",
    MODEL + "def data(shard): pass",
    "model = lambda: None\ndata = None",
    "from mine import model, data",
    "from mine import build as model, read as data",
]


@pytest.mark.parametrize("text", FINE)
def test_a_file_that_holds_what_it_must(tmp_path: Path, text: str) -> None:
    check_workload(spec_of(file(tmp_path, text)))


NO_MODEL = f": has no function model(){CONTRACT}"
NO_DATA = f": has neither data() nor DATASET, and the spec names no dataset{CONTRACT}"

# Each: contents of a file, and what is wrong with it.
BAD: list[tuple[str | bytes, str]] = [
    ("", NO_MODEL),
    ("DATASET = 'digits'", NO_MODEL),
    ("def modle(): pass", NO_MODEL),
    ("class A:\n    def model(self): pass", NO_MODEL),
    (MODEL, NO_DATA),
    (MODEL + "DATASET: str", NO_DATA),
    ("x = 1\ndef model(:\n", ":2: syntax error: invalid syntax"),
    ("def model():\n    pass\n  x = 1", ":3: syntax error: unindent does not match any outer indentation level"),
    ("x = (1,\n", ":1: syntax error: '(' was never closed"),
    (b"x = '\xff'", ": is not Python text: 'utf-8' codec can't decode byte 0xff in position 5: invalid start byte"),
    ("x = '\0'", ": syntax error: source code string cannot contain null bytes"),
]


@pytest.mark.parametrize(("text", "reported"), BAD, ids=range(len(BAD)))
def test_problems_of_a_file_are_reported_without_running_it(tmp_path: Path, text: str | bytes, reported: str) -> None:
    found = problem(file(tmp_path, text))
    assert found.startswith(reported)


def test_a_dataset_in_the_spec_is_sufficient_without_data(tmp_path: Path) -> None:
    check_workload(spec_of(file(tmp_path, MODEL), dataset="digits"))


def test_an_unknown_workload_name_is_reported_with_the_known_names() -> None:
    reported = problem("resnet")
    assert reported == "workload: 'resnet': not known; known: mnist, digits; or a path that ends in .py"


def test_a_misspelt_name_is_reported_with_the_nearest() -> None:
    reported = problem("mnits")
    assert (
        reported
        == "workload: 'mnits': not known; did you mean mnist?; known: mnist, digits; or a path that ends in .py"
    )
    assert "did you mean matmul?" in problem("matmull", strategy="graph")


GRAPHS = "sum, mean, ensemble, matmul, matpow, remote_gpu"


@pytest.mark.parametrize("name", workload.GRAPHS)
def test_our_graphs_are_fine_under_strategy_graph(name: str) -> None:
    check_workload(spec_of(name, strategy="graph"))


@pytest.mark.parametrize("name", workload.GRAPHS)
def test_a_graph_is_refused_where_a_model_is_trained(name: str) -> None:
    reported = problem(name, strategy="mirrored")
    assert reported == (
        f"workload: '{name}': is for strategy graph; mirrored trains mnist, digits, or a path that ends in .py"
    )


@pytest.mark.parametrize("name", workload.MODELS)
def test_a_model_is_refused_under_strategy_graph(name: str) -> None:
    reported = problem(name, strategy="graph")
    assert reported == f"workload: '{name}': trains a model; strategy graph runs {GRAPHS}, or a path that ends in .py"


@pytest.mark.parametrize("api", ["keras_fit", "train_and_evaluate"])
def test_an_api_other_than_loop_needs_a_file_of_the_users(api: str) -> None:
    assert problem("digits", api=api) == f"workload: 'digits': {api} needs a file of your own{CONTRACT}"


# Each: a spec, and the one function that its file must hold, for which it needs no data.
OTHERS: list[tuple[dict[str, Any], str]] = [
    ({"strategy": "graph"}, "compute"),
    ({"api": "train_and_evaluate"}, "train_and_evaluate"),
]


@pytest.mark.parametrize(("spec", "function"), OTHERS)
def test_a_file_must_hold_the_function_of_its_strategy_and_api(
    tmp_path: Path, spec: dict[str, Any], function: str
) -> None:
    path = file(tmp_path, MODEL + "DATASET = 'digits'")
    assert problem(path, **spec) == f": has no function {function}(){CONTRACT}"
    parameter = "cluster" if function == "compute" else ""
    check_workload(spec_of(file(tmp_path, f"def {function}({parameter}): pass"), **spec))


def test_under_keras_fit_a_file_holds_model_and_data(tmp_path: Path) -> None:
    check_workload(spec_of(file(tmp_path, MODEL + "DATASET = 'digits'"), api="keras_fit"))
    assert problem(file(tmp_path, "def fit(model, run): pass"), api="keras_fit") == NO_MODEL
    assert problem(file(tmp_path, MODEL), api="keras_fit") == NO_DATA


# Settings. ----------------------------------------------------------------------------------------

OWN = MODEL + "DATASET = 'digits'\n"
SETTINGS = OWN + "SETTINGS = {'units': 64, 'rate': 0.5, 'deep': False, 'text': 'a', 'sizes': [1], 'any': None}\n"


@pytest.mark.parametrize(
    "settings",
    [
        {"units": 3},
        {"rate": 0.25, "deep": True, "text": "", "sizes": []},
        {"rate": 1},
        {"any": 1},
        {"any": "x"},
        {"any": [1]},
        {"any": None},
    ],
)
def test_a_setting_has_the_type_of_its_default(tmp_path: Path, settings: dict[str, Any]) -> None:
    check_workload(spec_of(file(tmp_path, SETTINGS), settings=settings))


# Each: a setting, its value, and the message.
WRONG: list[tuple[str, Any, str]] = [
    ("unit", 3, "unknown setting; did you mean units?"),
    ("zzz", 3, "unknown setting; workload mine.py has units, rate, deep, text, sizes, any"),
    ("units", 0.5, "must be int, as its default 64"),
    ("units", True, "must be int, as its default 64"),
    ("units", None, "must be int, as its default 64"),
    ("rate", True, "must be float, as its default 0.5"),
    ("rate", "0.5", "must be float, as its default 0.5"),
    ("deep", 1, "must be bool, as its default False"),
    ("text", 1, "must be str, as its default 'a'"),
    ("sizes", {"a": 1}, "must be list, as its default [1]"),
]


@pytest.mark.parametrize(("key", "value", "reported"), WRONG)
def test_a_setting_that_is_wrong_is_reported_with_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: Any, reported: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file(tmp_path, SETTINGS)
    assert problem("mine.py", settings={key: value}) == f"settings.{key}: {value!r}: {reported}"


def test_all_wrong_settings_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        check_workload(spec_of(file(tmp_path, SETTINGS), settings={"unit": 3, "rate": 0.1, "text": 4}))
    assert [line.split(":")[0] for line in caught.value.problems] == ["settings.unit", "settings.text"]


@pytest.mark.parametrize("text", ["", "SETTINGS = {}", "SETTINGS: dict[str, int]"])
def test_a_file_without_settings_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    file(tmp_path, OWN + text)
    check_workload(spec_of("mine.py"))
    reported = problem("mine.py", settings={"units": 3})
    assert reported == "settings.units: 3: unknown setting; workload mine.py has none"


def test_settings_of_our_own_are_known_too() -> None:
    check_workload(spec_of("matpow", strategy="graph", settings={"size": 10, "devices": ["a", "b"]}))
    reported = problem("sum", strategy="graph", settings={"y": 1})
    assert reported == "settings.y: 1: unknown setting; workload sum has x"
    assert problem("digits", settings={"units": 1}).endswith("unknown setting; workload digits has none")


def test_a_file_that_is_not_there_or_no_file(tmp_path: Path) -> None:
    assert problem(tmp_path / "no.py") == f": no such file ({RELATIVE})"
    (tmp_path / "folder.py").mkdir()
    assert problem(tmp_path / "folder.py") == ": cannot be read: Is a directory"


def test_looking_needs_no_tensorflow(tmp_path: Path) -> None:
    path = file(tmp_path, "import tensorflow, nowhere\nDATASET = 'digits'\n" + MODEL)
    program = """
import sys
from trainer.job.load import build
from trainer.workloads.check import check_workload, own_optimizer
check_workload(build({"name": "j", "strategy": "multi_worker_mirrored", "workload": sys.argv[1]}))
print([name for name in ("tensorflow", "keras", "numpy") if name in sys.modules])
"""
    ended = subprocess.run([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_names_of_data_are_those_of_the_spec(tmp_path: Path) -> None:
    text = MODEL + "import trainer\ndef data(shard):\n    return trainer.data('trian'), trainer.data(shard.split)\n"
    data = {"train": {"path": "."}, "test": {"path": "."}}
    path = file(tmp_path, text)
    reported = "trainer.data('trian'): there is no such data: the spec's `data` has train, test; did you mean train?"
    assert problem(path, data=data) == f":4: {reported}"
    assert problem(path).endswith("the spec's `data` has no names; add {path: FOLDER} under it")
    check_workload(spec_of(file(tmp_path, text.replace("trian", "train")), data=data))
    optional = "import trainer\nif SETTINGS:\n    trainer.data('more')\nX = trainer.data('a') if SETTINGS else 1\n"
    check_workload(spec_of(file(tmp_path, MODEL + "SETTINGS = {}\nDATASET = 'digits'\n" + optional), data=data))


# What sets the optimizer. -------------------------------------------------------------------------

DATA = "DATASET = 'digits'\n"
COMPILED = "import keras\ndef model():\n    m = keras.Sequential()\n    m.compile('adam')\n    return m\n" + DATA
OPTIMIZER = MODEL + DATA + "def optimizer(steps, replicas): pass\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (COMPILED, "model.compile, if it is called"),
        (MODEL + DATA + "import re\nX = re.compile('x')\nY = compile('x', 'x', 'eval')", None),
        (MODEL + DATA + "class Net:\n    def compile(self): super().compile()", None),
        (OPTIMIZER, "optimizer()"),
        (MODEL + DATA, None),
    ],
)
def test_where_the_optimizer_is_set_is_seen_in_the_file(tmp_path: Path, text: str, expected: str | None) -> None:
    spec = spec_of(file(tmp_path, text))
    assert own_optimizer(spec) == expected
    rows = dict(line.split(maxsplit=1) for line in describe(spec) if line.startswith(("optimizer", "learning rate")))
    assert rows == ({"learning": "rate      0.001"} if expected is None else {"optimizer": f"of {expected}"})


def test_callbacks_beside_an_estimator_are_refused(tmp_path: Path) -> None:
    text = "def callbacks(): pass\ndef train_and_evaluate(): pass\n"
    assert "use hooks of the TrainSpec" in problem(file(tmp_path, text), api="train_and_evaluate")


def test_a_fit_that_the_loop_does_not_call_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, "DATASET = 'digits'\ndef model(): pass\ndef fit(model, run): pass")
    assert "has fit(), which the loop does not call; set api: keras_fit, or remove it" in str(problem(path))
