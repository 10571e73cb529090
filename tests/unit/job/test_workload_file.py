"""Imports of a workload file, found in its text."""

import hashlib
from pathlib import Path

import pytest

from trainer.job import workload_file

# Each: the top of a file, and whether importing it may run TensorFlow.
TOPS = [
    ("import keras\nDATASET = 'digits'\nSETTINGS = {'units': [64, -1]}\n", False),
    ("import tensorflow as tf\nSCALE = tf.constant(16.0)\n", True),
    ("import keras\nN = keras.layers.Normalization()\n", True),
    ("from tensorflow import constant as c\nif True:\n    X = c(1)\n", True),
    ("import tensorflow as tf\ndef f(x=tf.constant(1)): pass\n", True),
    ("import tensorflow as tf\nclass A:\n    x = tf.constant(1)\n", True),
    ("import tensorflow as tf\nwith open('x') as f:\n    X = [tf.constant(line) for line in f]\n", True),
    ("import tensorflow as tf\n(lambda: tf.constant(1))()\n", True),
    ("def f(): pass\nX = f()\n", True),
    ("from mystery import *\nX = f()\n", True),
    ("import tensorflow as tf\ndef f():\n    return tf.constant(1)\nasync def g(): tf.constant(1)\n", False),
    ("import tensorflow as tf\n@tf.function(jit_compile=True)\ndef f(): pass\n", False),
    ("import keras\n@keras.saving.register_keras_serializable()\nclass A(keras.layers.Layer): pass\n", False),
    ("import tensorflow as tf\nf = lambda: tf.constant(1)\n", False),
    ("import os.path\nfrom pathlib import Path\nX = Path(__file__).parent.joinpath(os.getcwd())\n", False),
    ("import numpy as np\nX = np.zeros(3)\nY = X.astype('float32')[0].item()\nprint(len(X), 'a b'.split())\n", False),
    ("import subprocess as s\nfrom os import getcwd as here\nX = s.run([here()])\n", False),
    ("import tensorflow as tf\nconstant = tf.constant\nX = constant(1)\n", True),
    ("import tensorflow as tf\nt = tf\nn = t.nn\nX = n.relu(-1)\n", True),
    ("import tensorflow as tf\na, f = 1, tf.constant\nX = f(a)\n", True),
    ("import tensorflow as tf\nFS = {'a': tf.constant}\nfor f in FS.values():\n    f(1)\n", True),
    ("import tensorflow as tf\nf: object = tf.constant\nf(1)\n", True),
    ("from keras.ops import sum, abs\nX = sum([1])\n", True),
    ("def sorted(x): pass\nX = sorted([1])\n", True),
    ("from .json import dumps\nX = dumps([1])\n", True),
    ("import importlib\nX = importlib.import_module('tensorflow').constant(1)\n", True),
    ("X = __import__('tensorflow').constant(1)\n", True),
    ("import numpy as np\nf = np.ones\nX = f(3)\nfor row in X:\n    row.tolist()\n", False),
    ("import tensorflow as tf\nLOSS = tf.nn.softmax\nMETRICS = {'a': LOSS}\n", False),
]


@pytest.mark.parametrize(("text", "runs"), TOPS)
def test_a_call_at_the_top_may_run_tensorflow(tmp_path: Path, text: str, runs: bool) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert workload_file.runs_code(path) == runs


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "mine.py"


FILES = {
    "mine.py": "import json, keras, one, open.folder\nfrom two.part import f\ndef model():\n    import late\n",
    "one.py": "import other.deep\nimport mine\n",
    "other/__init__.py": "from . import deep\n",
    "other/deep.py": "import three\n",
    "two/__init__.py": "",
    "two/part.py": "",
    "open/folder.py": "import four\n",
    "late.py": "",
    "three.py": "",
    "four.py": "",
    "unused.py": "import tensorflow as tf\ntf.constant(1)\n",
    "json.py": "",
    "keras/shadowed.py": "",
}


def test_the_modules_beside_a_file_that_it_imports_are_found_through_one_another(tmp_path: Path) -> None:
    found = workload_file.helpers(written(tmp_path, FILES))
    names = ["four.py", "late.py", "one.py", "open", "other", "three.py", "two"]
    assert [str(path.relative_to(tmp_path)) for path in found] == names


@pytest.mark.parametrize("name", ["three.py", "other/deep.py"])
def test_a_module_beside_the_file_may_run_tensorflow_too(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, FILES)
    assert not workload_file.runs_code(path)
    written(tmp_path, {name: FILES[name] + "import tensorflow as tf\nX = tf.constant(1)\n"})
    assert workload_file.runs_code(path)


def test_a_package_is_shipped_with_its_data_and_without_what_python_left(tmp_path: Path) -> None:
    written(tmp_path, {"two/__init__.py": "", "two/words.txt": "", "two/a/b.py": "", "two/__pycache__/a.pyc": ""})
    found = workload_file.files_of(tmp_path / "two")
    assert [str(path.relative_to(tmp_path)) for path in found] == ["two/__init__.py", "two/a/b.py", "two/words.txt"]


EDITS: list[tuple[dict[str, str | None], list[str]]] = [
    ({}, []),
    ({"mine.py": "import one\n"}, ["mine.py"]),
    ({"mine.py": "def model(:\n"}, ["mine.py"]),
    ({"mine.py": None}, ["mine.py"]),
    ({"late.py": "x = 2\n"}, ["late.py"]),
    ({"late.py": None, "two/part.py": "def f(:\n"}, ["late.py", "two"]),
    ({"two/words.txt": ""}, ["two"]),
    ({"maybe.py": ""}, ["maybe.py"]),
    ({"maybe.py": "", "three.py": "x"}, ["three.py"]),
    ({"unused.py": "", "json.py": "x", "two/__pycache__/part.pyc": "x"}, []),
]  # fmt: skip


@pytest.mark.parametrize(("edits", "names"), EDITS)
def test_what_was_edited_since_is_named(tmp_path: Path, edits: dict[str, str | None], names: list[str]) -> None:
    text = FILES["mine.py"] + "try:\n    import maybe\nexcept ImportError: pass\n"
    path = written(tmp_path, {**FILES, "mine.py": text})
    before = workload_file.digests(path)
    assert len(before) == 8
    for name in [name for name, text in edits.items() if text is None]:
        (tmp_path / name).unlink()
    written(tmp_path, {name: text for name, text in edits.items() if text is not None})
    assert workload_file.changed(path, before) == names


def test_a_file_that_stands_alone_has_its_own_digest(tmp_path: Path) -> None:
    path = written(tmp_path, {"mine.py": "import json\n"})
    sha256 = hashlib.sha256(b"import json\n").hexdigest()
    assert workload_file.combined(workload_file.digests(path)) == sha256


def test_missing_imports_are_reported_with_their_lines(tmp_path: Path) -> None:
    text = (
        "import json, numpy\nimport nowhere.deep, one\nfrom nothing import x\nfrom . import two\nfrom .two import y\n"
    )
    text += "try:\n    import quick\nexcept ImportError:\n    quick = None\nif False:\n    import never\n"
    text += "def model():\n    import later\n"
    path = written(tmp_path, {"mine.py": text, "one.py": "\nimport lost\n", "two.py": "import unused\n"})
    rest = "no such module; pip install it, or put {0}.py beside mine.py"
    assert workload_file.missing_imports(path, "mine.py") == [
        f"workload: mine.py:2: import nowhere: {rest.format('nowhere')}",
        f"workload: mine.py:3: import nothing: {rest.format('nothing')}",
        "workload: mine.py:4: a relative import, but the file is not in a package; remove the dots",
        "workload: mine.py:5: a relative import, but the file is not in a package; remove the dots",
        f"workload: {tmp_path}/one.py:2: import lost: {rest.format('lost')}",
    ]


@pytest.mark.parametrize("name", ["helper.py", "helper/__init__.py", "helper/data.txt"])
def test_modules_beside_the_file_or_in_the_working_directory_are_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "jobs").mkdir()
    path = written(tmp_path / "jobs", {"mine.py": "import helper\n"})
    assert workload_file.missing_imports(path, "mine.py")
    written(tmp_path, {name: ""})
    assert workload_file.left_behind(path, "mine.py") == []
    monkeypatch.chdir(tmp_path)
    assert workload_file.missing_imports(path, "mine.py") == []
    monkeypatch.undo()
    written(tmp_path / "jobs", {name: ""})
    assert workload_file.missing_imports(path, "mine.py") == []


def test_modules_of_the_working_directory_are_named_for_no_container_gets_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path, {"helper.py": "", "part/__init__.py": "", "json.py": "", "one.py": "", "unused.py": ""})
    text = "import helper, json, numpy, one\ndef model():\n    from part.deep import f\n"
    path = written(tmp_path / "jobs", {"mine.py": text, "one.py": "\nimport helper\n"})
    monkeypatch.chdir(tmp_path)
    rest = "is in the working directory, which containers do not have; put it beside mine.py"
    assert workload_file.left_behind(path, "jobs/mine.py") == [
        f"workload: jobs/mine.py:1: import helper: {rest}",
        f"workload: jobs/mine.py:3: import part: {rest}",
        f"workload: {tmp_path}/jobs/one.py:2: import helper: {rest}",
    ]
    monkeypatch.chdir(tmp_path / "jobs")
    assert workload_file.left_behind(path, "mine.py") == []
