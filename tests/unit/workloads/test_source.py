"""What the text of a workload file tells of its imports."""

from pathlib import Path

import pytest

from trainer.workloads import source

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
    ("import tensorflow as tf\nLOSS = tf.nn.softmax\nMETRICS = {'a': LOSS}\n", False),
]


@pytest.mark.parametrize(("text", "runs"), TOPS)
def test_a_call_at_the_top_may_run_tensorflow(tmp_path: Path, text: str, runs: bool) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert source.runs_code(path) == runs


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "mine.py"


FILES = {
    "mine.py": "import json, keras, one\nfrom two.part import f\ndef model():\n    import late\n",
    "one.py": "import other.deep\nimport mine\n",
    "other/__init__.py": "from . import deep\n",
    "other/deep.py": "import three\n",
    "two/__init__.py": "",
    "two/part.py": "",
    "late.py": "",
    "three.py": "",
    "unused.py": "import tensorflow as tf\ntf.constant(1)\n",
    "json.py": "",
    "keras/readme.txt": "no module",
}


def test_the_modules_beside_a_file_that_it_imports_are_found_through_one_another(tmp_path: Path) -> None:
    found = source.helpers(written(tmp_path, FILES))
    assert [str(path.relative_to(tmp_path)) for path in found] == ["late.py", "one.py", "other", "three.py", "two"]


@pytest.mark.parametrize("name", ["three.py", "other/deep.py"])
def test_a_module_beside_the_file_may_run_tensorflow_too(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, FILES)
    assert not source.runs_code(path)
    written(tmp_path, {name: FILES[name] + "import tensorflow as tf\nX = tf.constant(1)\n"})
    assert source.runs_code(path)
