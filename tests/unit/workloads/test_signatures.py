from pathlib import Path
from typing import Any

import pytest

from tests.unit.workloads.files import MODEL, file, problem, spec_of
from trainer.workloads.check import check_workload
from trainer.workloads.load import load_workload
from trainer.workloads.workload import SHARD, Shard

LOSS = "loss(y, prediction)"


@pytest.mark.parametrize(
    ("text", "line", "reported"),
    [
        ("def data(): pass", 2, f"data() is called as data(shard); write def data(shard): {SHARD}"),
        ("def data(split, n): pass", 2, f"data(split, n) is called as data(shard); write def data(shard): {SHARD}"),
        ("def data(*, split): pass", 2, f"data(*, split) is called as data(shard); write def data(shard): {SHARD}"),
        (
            "def data(shard): pass\ndef validation(): pass", 3,
            f"validation() is called as validation(shard); write def validation(shard): {SHARD}",
        ),
        ("DATASET = ''\ndef loss(y): pass", 3, f"loss(y) is called as {LOSS}; write def {LOSS}"),
        ("DATASET = ''\ndef callbacks(run): pass", 3, "callbacks(run) is called as callbacks(); write def callbacks()"),
    ],
)  # fmt: skip
def test_functions_that_cannot_be_called_so(tmp_path: Path, text: str, line: int, reported: str) -> None:
    assert problem(file(tmp_path, MODEL + text)) == f":{line}: {reported}"


DATA = "; write def data(shard), or use another name"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("data = (1, 2)", f":2: data is a tuple, and trainer calls data(shard){DATA}"),
        ("def data(shard): pass\ncallbacks = []", ":3: callbacks is a list, and trainer calls callbacks(); write def "),
    ],
)
def test_a_value_in_place_of_a_function_is_found_in_the_file(tmp_path: Path, text: str, reported: str) -> None:
    assert problem(file(tmp_path, MODEL + text)).startswith(reported)


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("data = tuple([1, 2])", f"data is a tuple, and trainer calls data(shard){DATA}"),
        (
            "import keras\ndef model(): return keras.Sequential()\nmodel = model()\ndef data(shard): pass",
            "model is a Sequential, and trainer calls model(); write def model(), or use another name",
        ),
        ("DATASET = 'x'\nfrom keras import callbacks", "callbacks is a module, and trainer calls callbacks(); write"),
    ],
)
def test_a_value_in_place_of_a_function_is_found_when_it_is_loaded(tmp_path: Path, text: str, reported: str) -> None:
    path = file(tmp_path, MODEL + text)
    check_workload(spec_of(path))
    assert problem(path, load_workload).startswith(f": {reported}")


def test_anything_that_can_be_called_is_a_function(tmp_path: Path) -> None:
    text = "import functools\nmodel = functools.partial(model)\nloss = None\ndata = lambda shard: 1"
    loaded = load_workload(spec_of(file(tmp_path, MODEL + text)))
    assert loaded.loss is None
    data = load_workload(spec_of(file(tmp_path, MODEL + "data = [1]", "other.py"), dataset="digits"))
    assert data.dataset == "digits"


def test_model_takes_no_arguments_that_are_required(tmp_path: Path) -> None:
    text = "DATASET = 'x'\ndef model(n"
    assert problem(file(tmp_path, f"{text}): pass")) == ":2: model(n) is called as model(); write def model()"
    check_workload(spec_of(file(tmp_path, f"{text}=3): pass")))


@pytest.mark.parametrize(
    "text",
    [
        "def data(*shard): pass",
        "def data(shard, path='x', *, size=3): pass",
        "def data(s, /, **more): pass",
        "import functools\n@functools.partial\ndef data(): pass",
        "KEPT = {}\ndef data(shard):\n    KEPT[shard] = 1\n    return KEPT[shard]",
        "def data(shard):\n    return {'train': 1}[shard.split] if shard.split == 'train' and shard is not None else 2",
        "DATASET = 'x'\ndef callbacks(model_dir): pass",
    ],
)
def test_functions_that_can(tmp_path: Path, text: str) -> None:
    check_workload(spec_of(file(tmp_path, MODEL + text)))


@pytest.mark.parametrize(
    "after",
    [
        "data = functools.partial(data, split='x')",
        "data: object = functools.partial(data)",
        "@functools.cache\ndef data(shard): pass",
        "def data(shard): pass",
        "async def data(shard): pass",
        "class data: pass",
        "if True:\n    def data(shard): pass",
        "try:\n    from helpers import data\nexcept ImportError:\n    pass",
        "from helpers import given as data",
        "from helpers import *",
        "import data.of_mine",
        "del data",
        "(x, data), data.y = 1, 2",
        "for data in (): pass",
        "with open('x') as data: pass",
        "print(data := 2)",
        "def setup():\n    global data\n    data = 1\nsetup()",
        "match 1:\n    case data: pass",
    ],
)
def test_a_name_that_the_file_binds_again_may_be_another_function(tmp_path: Path, after: str) -> None:
    for text in (f"def data(): pass\n{after}", f"{after}\ndef data(): pass"):
        check_workload(spec_of(file(tmp_path, f"{MODEL}DATASET = 'x'\n{text}")))
    elsewhere = "def other(data):\n    data = [data for data in ()]\nclass Another:\n    data = 2\n"
    assert "is called as data(shard)" in problem(file(tmp_path, f"{MODEL}{elsewhere}def data(): pass"))


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"dataset": "digits"}, "def data(): pass"),
        ({"dataset": "digits"}, "def compute(a, b): pass\ndef train_and_evaluate(a): pass"),
        ({"strategy": "graph"}, "def compute(cluster): pass\ndef data(): pass"),
        ({"api": "train_and_evaluate"}, "def train_and_evaluate(): pass\ndef model(features): pass"),
    ],
)
def test_functions_that_trainer_does_not_call_take_what_they_like(
    tmp_path: Path, spec: dict[str, Any], text: str
) -> None:
    check_workload(spec_of(file(tmp_path, f"{MODEL}{text}"), **spec))


def test_a_shard_is_not_the_name_of_its_split() -> None:
    # `data(split)` that asks split == "train" would train on the test data.
    assert Shard("train") == Shard("train") != Shard("test")
    assert {Shard("test"): 1}[Shard("test")] == 1
    with pytest.raises(TypeError, match=r"a shard is compared with 'train'; .*shard\.split is"):
        assert Shard("train") == "train"
    with pytest.raises(TypeError, match="'test'"):
        assert Shard("train") in ("test", "validation")
