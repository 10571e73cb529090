import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.job.errors import Exit, UserError
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.workloads import workload

MODEL = "def model(): pass\n"
CONTRACT = "; see `trainer/workloads/workload.py` for what a workload file holds"


def spec_of(name: str | Path, **more: Any) -> JobSpec:
    return build({"name": "j", "strategy": "multi_worker_mirrored", "workload": str(name), **more})


def file(tmp_path: Path, text: str | bytes, name: str = "mine.py") -> Path:
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def problem(name: str | Path, look: Any = workload.check, **more: Any) -> str:
    with pytest.raises(UserError) as caught:
        look(spec_of(name, **more))
    assert caught.value.code is Exit.USER
    (line,) = caught.value.problems
    assert line.isprintable()
    return line.removeprefix(f"workload: {name}")


# Looking at it. -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", workload.MODELS)
def test_our_own_are_fine(name: str) -> None:
    workload.check(spec_of(name))


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
    workload.check(spec_of(file(tmp_path, text)))


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
    workload.check(spec_of(file(tmp_path, MODEL), dataset="digits"))


def test_a_name_that_is_not_ours_is_told_with_ours() -> None:
    told = problem("resnet")
    assert told == "workload: 'resnet': not known; known: mnist, digits; or a path that ends in .py"


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
workload.check(build({"name": "j", "strategy": "multi_worker_mirrored", "workload": sys.argv[1]}))
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
    loaded = workload.load(spec_of(path := file(tmp_path, text)))
    assert loaded.name == str(path)
    assert loaded.data is not None
    assert loaded.loss is not None
    assert (loaded.data(workload.Shard("train")), loaded.loss(0, 0), loaded.dataset) == (1, 2, None)
    assert loaded.metrics == {"a": loaded.loss}
    assert loaded.evaluate is not None
    assert loaded.evaluate(None) == {}


def test_what_a_file_does_not_hold_is_none(tmp_path: Path) -> None:
    loaded = workload.load(spec_of(file(tmp_path, MODEL + "DATASET = 'digits'")))
    assert (loaded.dataset, loaded.data, loaded.loss) == ("digits", None, None)
    assert (loaded.metrics, loaded.evaluate) == (None, None)


def test_a_dataset_in_the_spec_takes_the_place_of_the_files(tmp_path: Path) -> None:
    text = MODEL + "DATASET = 'digits'\ndef data(shard): return 1\n"
    loaded = workload.load(spec_of(file(tmp_path, text), dataset="mnist"))
    assert (loaded.dataset, loaded.data) == ("mnist", None)


RAISES = [
    ("1 / 0\n", ":1: ZeroDivisionError: division by zero"),
    ("x = 1\nimport nowhere_to_be_found\n", ":2: ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
    ("def f():\n    raise ValueError('a\\nb')\nf()\n", ":2: ValueError: a b"),
    ("import json\njson.loads('{')\n", ":2: JSONDecodeError: Expecting property name enclosed in double quotes: line"),
]


@pytest.mark.parametrize(("text", "told"), RAISES)
def test_what_a_file_raises_is_told_with_its_line(tmp_path: Path, text: str, told: str) -> None:
    path = file(tmp_path, text + MODEL + "DATASET = 'digits'")
    assert problem(path, workload.load).startswith(told)


def test_modules_beside_the_file_can_be_imported(tmp_path: Path) -> None:
    file(tmp_path, "def data(shard): return 7", "beside_it.py")
    loaded = workload.load(spec_of(file(tmp_path, MODEL + "from beside_it import data")))
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
workload.load(build({"name": "j", "strategy": "multi_worker_mirrored", "workload": sys.argv[1]}))
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
    loss: Any = workload.load(spec_of("mine.py")).loss
    error = raised(lambda: loss(0, 0))
    told = workload.where_it_failed(error, "mine.py")
    assert told is not None
    assert told.startswith("workload: mine.py:6: OSError: xxx")
    assert len(told) < 400
    assert workload.where_it_failed(error, str(tmp_path / "another.py")) is None


def test_an_error_elsewhere_is_not_theirs(tmp_path: Path) -> None:
    error = raised(lambda: int("x"))
    assert workload.where_it_failed(error, str(tmp_path / "mine.py")) is None
    assert workload.where_it_failed(error, "digits") is None
    assert workload.where_it_failed(error, __file__) is not None


def test_an_error_that_no_translation_made_is_its_own_original() -> None:
    def fail() -> None:
        try:
            int("x")
        except ValueError:
            raise KeyError from None

    error = raised(fail)
    assert workload.original(error) is error
