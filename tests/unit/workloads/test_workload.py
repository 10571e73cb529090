import hashlib
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from trainer.job.errors import Exit, UserError
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.workloads import workload
from trainer.workloads.check import check_workload
from trainer.workloads.digests import digest
from trainer.workloads.load import load_graph, load_workload
from trainer.workloads.locate import original, where_it_failed

MODEL = "def model(): pass\n"
CONTRACT = "; see `trainer/workloads/workload.py` for what a workload file holds"


def spec_of(name: str | Path, **more: Any) -> JobSpec:
    return build({"name": "j", "strategy": "multi_worker_mirrored", "workload": str(name), **more})


def file(tmp_path: Path, text: str | bytes, name: str = "mine.py") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def problem(name: str | Path, look: Any = check_workload, **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        look(spec_of(name, **more))
    assert caught.value.code is Exit.USER
    (line,) = caught.value.problems
    assert line.isprintable()
    return line.removeprefix(f"workload: {name}")


# Looking at it. -----------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("text", "told"), BAD, ids=range(len(BAD)))
def test_what_is_wrong_with_a_file_is_told_without_running_it(tmp_path: Path, text: str | bytes, told: str) -> None:
    found = problem(file(tmp_path, text))
    assert found.startswith(told)


def test_a_dataset_in_the_spec_is_data_enough(tmp_path: Path) -> None:
    check_workload(spec_of(file(tmp_path, MODEL), dataset="digits"))


def test_a_digest_is_of_what_the_file_holds_wherever_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    here, there = file(tmp_path, MODEL), file(folder, MODEL, "other.py")
    assert digest(spec_of(here)) == digest(spec_of(there))
    there.write_text(MODEL + "# changed")
    assert digest(spec_of(here)) != digest(spec_of(there))
    assert digest(spec_of("mnist")) != digest(spec_of("digits"))
    assert problem(tmp_path / "gone.py", digest) == ": cannot be read: No such file or directory"


def test_a_digest_is_of_the_modules_beside_the_file_too(tmp_path: Path) -> None:
    path = file(tmp_path, MODEL + "import one, two\n")
    alone = digest(spec_of(path))
    (tmp_path / "two").mkdir()
    for name in ("one.py", "two/__init__.py", "two/words.txt", "unused.py"):
        file(tmp_path, "x = 1\n", name)
    digests = [alone, digest(spec_of(path))]
    for name in ("one.py", "two/__init__.py", "two/words.txt"):
        file(tmp_path, "x = 2\n", name)
        digests.append(digest(spec_of(path)))
    assert len(set(digests)) == 5
    file(tmp_path, "x = 2\n", "unused.py")
    assert digest(spec_of(path)) == digests[-1]


@pytest.mark.parametrize("more", [{}, {"api": "train_and_evaluate"}])
def test_a_loaded_workload_keeps_the_digest_that_it_was_loaded_with(tmp_path: Path, more: dict[str, Any]) -> None:
    path = file(
        tmp_path,
        ESTIMATOR.format("Estimator(model, loss), trained, evaluated") if more else MODEL + "DATASET = 'digits'\n",
    )
    loaded, before = load_workload(spec_of(path, **more)), hashlib.sha256(path.read_bytes()).hexdigest()
    path.write_text("# edited\n")
    assert loaded.sha256 == before


def test_a_name_that_is_not_ours_is_told_with_ours() -> None:
    told = problem("resnet")
    assert told == "workload: 'resnet': not known; known: mnist, digits; or a path that ends in .py"


def test_a_misspelt_name_is_told_with_the_nearest() -> None:
    told = problem("mnits")
    assert told == "workload: 'mnits': not known; did you mean mnist?; known: mnist, digits; or a path that ends in .py"
    assert "did you mean matmul?" in problem("matmull", strategy="graph")


GRAPHS = "sum, mean, ensemble, matmul, matpow, remote_gpu"


@pytest.mark.parametrize("name", workload.GRAPHS)
def test_our_graphs_are_fine_under_strategy_graph(name: str) -> None:
    check_workload(spec_of(name, strategy="graph"))


@pytest.mark.parametrize("name", workload.GRAPHS)
def test_a_graph_is_refused_where_a_model_is_trained(name: str) -> None:
    told = problem(name, strategy="mirrored")
    assert told == (
        f"workload: '{name}': is for strategy graph; mirrored trains mnist, digits, or a path that ends in .py"
    )


@pytest.mark.parametrize("name", workload.MODELS)
def test_a_model_is_refused_under_strategy_graph(name: str) -> None:
    told = problem(name, strategy="graph")
    assert told == f"workload: '{name}': trains a model; strategy graph runs {GRAPHS}, or a path that ends in .py"


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
    check_workload(spec_of(file(tmp_path, f"def {function}(): pass"), **spec))


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


# Each: a setting, its value, and what is told.
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


@pytest.mark.parametrize(("key", "value", "told"), WRONG)
def test_a_setting_that_is_wrong_is_told_with_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, value: Any, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    file(tmp_path, SETTINGS)
    assert problem("mine.py", settings={key: value}) == f"settings.{key}: {value!r}: {told}"


def test_settings_that_are_wrong_are_told_all_at_once(tmp_path: Path) -> None:
    with pytest.raises(UserError) as caught:
        check_workload(spec_of(file(tmp_path, SETTINGS), settings={"unit": 3, "rate": 0.1, "text": 4}))
    assert [line.split(":")[0] for line in caught.value.problems] == ["settings.unit", "settings.text"]


@pytest.mark.parametrize("text", ["", "SETTINGS = {}", "SETTINGS: dict[str, int]"])
def test_a_file_without_settings_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.chdir(tmp_path)
    file(tmp_path, OWN + text)
    check_workload(spec_of("mine.py"))
    told = problem("mine.py", settings={"units": 3})
    assert told == "settings.units: 3: unknown setting; workload mine.py has none"


def test_settings_of_our_own_are_known_too() -> None:
    check_workload(spec_of("matpow", strategy="graph", settings={"size": 10, "devices": ["a", "b"]}))
    told = problem("sum", strategy="graph", settings={"y": 1})
    assert told == "settings.y: 1: unknown setting; workload sum has x"
    assert problem("digits", settings={"units": 1}).endswith("unknown setting; workload digits has none")


def test_a_file_that_is_not_there_or_no_file(tmp_path: Path) -> None:
    assert problem(tmp_path / "no.py") == ": no such file (a path is relative to the spec)"
    (tmp_path / "folder.py").mkdir()
    assert problem(tmp_path / "folder.py") == ": cannot be read: Is a directory"


def test_looking_needs_no_tensorflow(tmp_path: Path) -> None:
    path = file(tmp_path, "import tensorflow, nowhere\nDATASET = 'digits'\n" + MODEL)
    program = """
import sys
from trainer.job.load import build
from trainer.workloads import workload
check_workload(build({"name": "j", "strategy": "multi_worker_mirrored", "workload": sys.argv[1]}))
print([name for name in ("tensorflow", "keras", "numpy") if name in sys.modules])
"""
    ended = subprocess.run([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True, check=True)
    assert ended.stdout == "[]\n"


# Importing it. ------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an import changes for the whole process is put back."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in list(sys.modules):
        if name.startswith("trainer_workload_"):
            monkeypatch.delitem(sys.modules, name)


def test_what_a_file_holds_is_loaded(tmp_path: Path) -> None:
    text = (
        MODEL
        + "def data(shard): return 1\ndef loss(y, p): return 2\nMETRICS = {'a': loss}\ndef evaluate(m): return {}\n"
    )
    loaded = load_workload(spec_of(path := file(tmp_path, text)))
    assert loaded.name == str(path)
    assert loaded.data is not None
    assert loaded.loss is not None
    assert (loaded.data(workload.Shard("train")), loaded.loss(0, 0), loaded.dataset) == (1, 2, None)
    assert loaded.metrics == {"a": loaded.loss}
    assert loaded.evaluate is not None
    assert loaded.evaluate(None) == {}


def test_what_a_file_does_not_hold_is_none(tmp_path: Path) -> None:
    loaded = load_workload(spec_of(file(tmp_path, MODEL + "DATASET = 'digits'")))
    assert (loaded.dataset, loaded.data, loaded.loss) == ("digits", None, None)
    assert (loaded.metrics, loaded.evaluate) == (None, None)


def test_a_dataset_in_the_spec_takes_the_place_of_the_files(tmp_path: Path) -> None:
    text = MODEL + "DATASET = 'digits'\ndef data(shard): return 1\n"
    loaded = load_workload(spec_of(file(tmp_path, text), dataset="mnist"))
    assert (loaded.dataset, loaded.data) == ("mnist", None)


def test_a_fit_of_the_files_is_loaded(tmp_path: Path) -> None:
    text = MODEL + "DATASET = 'digits'\ndef fit(model, run): run.append(model)\n"
    loaded = load_workload(spec_of(file(tmp_path, text), api="keras_fit"))
    run: Any = []
    assert loaded.fit is not None
    loaded.fit(7, run)
    assert run == [7]


@pytest.mark.parametrize("kind", ["", ": dict"])
def test_settings_are_changed_before_anything_is_called(tmp_path: Path, kind: str) -> None:
    text = f"SETTINGS{kind} = {{'units': 64, 'rate': 0.5}}\ndef model(): return SETTINGS\nDATASET = 'digits'\n"
    path = file(tmp_path, text)
    assert load_workload(spec_of(path, settings={"units": 3})).model() == {"units": 3, "rate": 0.5}
    assert load_workload(spec_of(path)).model() == {"units": 64, "rate": 0.5}


def test_a_setting_that_is_wrong_stops_a_file_before_it_is_run(tmp_path: Path) -> None:
    path = file(tmp_path, SETTINGS + "1 / 0\n")
    assert problem(path, load_workload, settings={"units": "x"}).startswith("settings.units: 'x': must be int")


def test_a_graph_of_the_users_is_loaded_with_its_settings(tmp_path: Path) -> None:
    text = "SETTINGS = {'x': 2}\ndef compute(cluster): return {'y': cluster * SETTINGS['x']}\n"
    path = file(tmp_path, text)
    loaded = load_graph(spec_of(path, strategy="graph", settings={"x": 5}))
    assert (loaded.name, loaded.compute(cast(Any, 3))) == (str(path), {"y": 15})


def test_a_graph_that_raises_when_imported_is_told_with_its_line(tmp_path: Path) -> None:
    path = file(tmp_path, "def compute(cluster): pass\n1 / 0\n")
    told = problem(path, load_graph, strategy="graph")
    assert told == ":2: ZeroDivisionError: division by zero"


def test_a_graph_of_ours_is_loaded_with_its_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module("trainer.workloads.graphs.sum")
    monkeypatch.setattr(module, "SETTINGS", {"x": 2})
    loaded = load_graph(spec_of("sum", strategy="graph", settings={"x": 5}))
    assert (loaded.name, loaded.compute) == ("sum", module.compute)
    assert module.SETTINGS == {"x": 5}


ESTIMATOR = """from trainer.workloads.estimator import Estimator, EvalSpec, LinearRegressor, TrainSpec
def model(): return 1
def loss(y, prediction): return 2
def input_fn(context): return 3
trained, evaluated = TrainSpec(input_fn, max_steps=5), EvalSpec(input_fn, steps=6)
def train_and_evaluate(): return {}
"""


def estimator(tmp_path: Path, given: str) -> workload.Workload:
    return load_workload(spec_of(file(tmp_path, ESTIMATOR.format(given)), api="train_and_evaluate"))


def test_what_train_and_evaluate_gives_is_loaded(tmp_path: Path) -> None:
    loaded = estimator(tmp_path, "Estimator(model, loss, {'a': loss}), trained, evaluated")
    assert loaded.name == str(tmp_path / "mine.py")
    assert loaded.model() == 1
    assert loaded.loss is not None
    assert loaded.loss(0, 0) == 2
    assert loaded.metrics == {"a": loaded.loss}
    assert loaded.train_spec is not None
    assert loaded.eval_spec is not None
    assert (loaded.train_spec.max_steps, loaded.eval_spec.steps) == (5, 6)
    assert (loaded.data, loaded.dataset, loaded.evaluate, loaded.fit) == (None, None, None, None)


@pytest.mark.parametrize(
    ("parts", "metrics"), [("", None), (", loss", []), (", metrics={'a': loss}", ["a"]), (", loss, {}", [])]
)
def test_an_estimator_with_a_loss_of_its_own_has_no_accuracy_by_default(
    tmp_path: Path, parts: str, metrics: list[str] | None
) -> None:
    loaded = estimator(tmp_path, f"Estimator(model{parts}), trained, evaluated")
    assert (loaded.metrics if loaded.metrics is None else list(loaded.metrics)) == metrics


def test_a_subclass_of_estimator_will_do(tmp_path: Path) -> None:
    assert estimator(tmp_path, "LinearRegressor(['x']), trained, evaluated").loss is not None


@pytest.mark.parametrize(
    "given",
    [
        "None",
        "Estimator(model)",
        "(Estimator(model), trained)",
        "(Estimator(model), trained, evaluated, 1)",
        "[Estimator(model), trained, evaluated]",
        "(Estimator(model), evaluated, trained)",
        "(Estimator, trained, evaluated)",
        "(model, trained, evaluated)",
    ],
)
def test_train_and_evaluate_must_give_its_three(tmp_path: Path, given: str) -> None:
    path = file(tmp_path, ESTIMATOR.format(given))
    told = problem(path, load_workload, api="train_and_evaluate")
    assert told == ": train_and_evaluate() must give (Estimator, TrainSpec, EvalSpec)"


RAISES = [
    ("1 / 0\n", ":1: ZeroDivisionError: division by zero"),
    ("x = 1\nimport nowhere_to_be_found\n", ":2: ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
    ("def f():\n    raise ValueError('a\\nb')\nf()\n", ":2: ValueError: a b"),
    ("import json\njson.loads('{')\n", ":2: JSONDecodeError: Expecting property name enclosed in double quotes: line"),
]


@pytest.mark.parametrize(("text", "told"), RAISES)
def test_what_a_file_raises_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    path = file(tmp_path, text + MODEL + "DATASET = 'digits'")
    assert problem(path, load_workload).startswith(told)


def test_modules_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    file(tmp_path, "def data(shard): return 7", "beside_it.py")
    loaded = load_workload(spec_of(file(tmp_path, MODEL + "from beside_it import data")))
    assert loaded.data is not None
    assert loaded.data(workload.Shard("train")) == 7


@pytest.mark.parametrize("name", ["json.py", "colorsys.py"])
def test_a_file_never_hides_a_module_of_the_standard_library(tmp_path: Path, name: str) -> None:
    """In a fresh interpreter: json is imported by then, colorsys is not."""
    path = file(tmp_path, MODEL + "DATASET = 'digits'\nimport json, colorsys\n", name)
    program = """
import sys
from trainer.job.load import build
from trainer.workloads import workload
load_workload(build({"name": "j", "strategy": "multi_worker_mirrored", "workload": sys.argv[1]}))
import json, colorsys
print(json.loads("3"), colorsys.rgb_to_hsv(0, 0, 0))
"""
    ended = subprocess.run([sys.executable, "-c", program, path], stdout=subprocess.PIPE, text=True, check=True)
    assert ended.stdout == "3 (0.0, 0.0, 0)\n"


# Whose error it is. -------------------------------------------------------------------------------


def raised(call: Any) -> BaseException:
    with pytest.raises(Exception) as caught:  # noqa: PT011 (any)
        call()
    return caught.value


def test_an_error_in_a_users_function_is_theirs_with_the_innermost_of_their_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (
        MODEL
        + "DATASET = 'digits'\ndef loss(y, p):\n    return inner(y)\ndef inner(y):\n    raise OSError('x' * 400)\n"
    )
    monkeypatch.chdir(tmp_path)
    file(tmp_path, text)
    loss: Any = load_workload(spec_of("mine.py")).loss
    error = raised(lambda: loss(0, 0))
    told = where_it_failed(error, "mine.py")
    assert told is not None
    assert told.startswith("workload: mine.py:6: OSError: xxx")
    assert len(told) < 400
    assert where_it_failed(error, str(tmp_path / "another.py")) is None


def test_an_error_in_a_module_beside_the_file_is_theirs_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file(tmp_path, "\ndef data(shard):\n    return 1 / 0\n", "deep_within.py")
    data: Any = load_workload(spec_of(file(tmp_path, MODEL + "from deep_within import data").name)).data
    error = raised(lambda: data(workload.Shard("train")))
    told = "workload: deep_within.py:3: ZeroDivisionError: division by zero"
    assert where_it_failed(error, "mine.py") == told


def test_an_error_elsewhere_is_not_theirs(tmp_path: Path) -> None:
    error = raised(lambda: int("x"))
    assert where_it_failed(error, str(tmp_path / "mine.py")) is None
    assert where_it_failed(error, "digits") is None
    assert where_it_failed(error, __file__) is not None


def test_an_error_that_no_translation_made_is_its_own_original() -> None:
    def fail() -> None:
        try:
            int("x")
        except ValueError:
            raise KeyError from None

    error = raised(fail)
    assert original(error) is error


def test_what_a_star_import_lacks_is_told_when_it_is_loaded(tmp_path: Path) -> None:
    mine = file(tmp_path, "from json import *")
    check_workload(spec_of(mine))
    assert problem(mine, load_workload) == f": has no function model(){CONTRACT}"
