"""An export is complete or absent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.unit.training.jobs import with_workload
from trainer.job.cluster import tasks_of
from trainer.job.load import build
from trainer.training.model import batches
from trainer.training.model.build_model import build_model
from trainer.training.outputs import exports
from trainer.training.runtime import created_variables
from trainer.training.task import TrainingTask
from trainer.workloads import digits
from trainer.workloads.estimator import BestExporter, EvalSpec, Exporter, FinalExporter, LatestExporter
from trainer.workloads.workload import Workload

# TensorFlow's variables and Keras, as they are, with NumPy 2.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")


def test_the_export_is_a_model_that_others_can_load_and_replaces_the_one_before(tmp_path: Path) -> None:
    model = digits.model()
    (tmp_path / "export").mkdir()
    (tmp_path / "export" / "old").write_text("")
    (tmp_path / ".tmp-export").mkdir()
    exports.export(model, str(tmp_path))
    assert sorted(path.name for path in (tmp_path / "export").iterdir()) == ["model.keras", "saved_model"]
    assert [path.name for path in tmp_path.iterdir()] == ["export"]
    x = np.arange(5 * 64, dtype=np.uint8).reshape(5, 8, 8) % 17
    expected = model(x).numpy()
    np.testing.assert_allclose(keras.models.load_model(tmp_path / "export" / "model.keras")(x), expected, atol=1e-5)
    served = tf.saved_model.load(tmp_path / "export" / "saved_model")
    np.testing.assert_allclose(served.serve(x), expected, atol=1e-5)


class Tokens(keras.Model):  # type: ignore[misc]
    """Takes words as numbers, or text, and one number beside; it has no Input."""

    def __init__(self, vectorize: Any = None) -> None:
        super().__init__()
        self.vectorize, self.table, self.head = vectorize, keras.layers.Embedding(9, 4), keras.layers.Dense(2)

    def call(self, x: Any) -> Any:
        words = self.vectorize(x["words"]) if self.vectorize else x["words"]
        return self.head(keras.ops.mean(self.table(words), 1)) + x["more"]


NUMBERS, TEXT, MORE = np.arange(12, dtype="int32").reshape(2, 6) % 9, np.array(["a b", "c"]), np.ones((2, 1), "float32")


@pytest.mark.parametrize("words", [NUMBERS, TEXT], ids=["integers", "text"])
@pytest.mark.parametrize("called", [False, True], ids=["built for the data", "called in model()"])
def test_a_saved_model_takes_the_types_of_the_data_if_the_model_has_no_input(
    tmp_path: Path, words: Any, called: bool
) -> None:
    vectorize = None
    if words is TEXT:
        vectorize = keras.layers.TextVectorization(vocabulary=["a", "b", "c"], output_sequence_length=3)
    x = {"words": words, "more": MORE}

    def make() -> Any:
        model = Tokens(vectorize)
        if called:
            model({name: tf.constant(part) for name, part in x.items()})
        return model

    data = {name: np.tile(part, (60, *[1] * (part.ndim - 1))) for name, part in x.items()}
    job = with_workload(model=make, data=lambda shard: (data, np.zeros(120)))
    model = build_model(job)
    assert not created_variables.declares_inputs(model)
    exports.export(model, str(tmp_path), x=batches.x_spec(job))
    loaded = tf.saved_model.load(tmp_path / "export" / "saved_model")
    (wanted,) = loaded.serve.concrete_functions[0].structured_input_signature[0]
    assert {name: spec.dtype.name for name, spec in wanted.items()} == {
        "words": "string" if words is TEXT else "int32",
        "more": "float32",
    }
    given = {name: tf.constant(part) for name, part in x.items()}
    np.testing.assert_allclose(loaded.serve(given), model(given), atol=1e-5)


def test_a_saved_model_of_a_sequence_of_layers_takes_the_integers_of_the_data(tmp_path: Path) -> None:
    job = with_workload(
        model=lambda: keras.Sequential([keras.layers.Embedding(9, 4), keras.layers.Flatten(), keras.layers.Dense(2)]),
        data=lambda shard: (np.tile(NUMBERS, (60, 1)), np.zeros(120)),
    )
    model = build_model(job)
    exports.export(model, str(tmp_path), x=batches.x_spec(job))
    loaded = tf.saved_model.load(tmp_path / "export" / "saved_model")
    np.testing.assert_allclose(loaded.serve(tf.constant(NUMBERS)), model(NUMBERS), atol=1e-5)
    assert created_variables.declares_inputs(build_model(with_workload(model=digits.model)))


class Unwritable(keras.layers.Layer):  # type: ignore[misc]
    def __init__(self, table: Any) -> None:
        super().__init__()
        self.table = table

    def call(self, x: Any) -> Any:
        return x * self.table


def test_a_model_without_config_is_exported_as_a_saved_model_only(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), Unwritable(np.ones(2, np.float32))])
    assert list(exports.export(model, str(tmp_path))) == ["model.keras"]
    assert [path.name for path in (tmp_path / "export").iterdir()] == ["saved_model"]


class Gan(keras.Model):  # type: ignore[misc]
    """As in Keras' guides: models as arguments, and no get_config() or call()."""

    def __init__(self, generator: Any) -> None:
        super().__init__()
        self.generator = generator


def test_of_a_model_that_cannot_be_exported_there_are_the_weights(tmp_path: Path) -> None:
    model, other = (Gan(keras.Sequential([keras.Input((2,)), keras.layers.Dense(3)])) for _ in "12")
    model.built = other.built = True
    assert list(exports.export(model, str(tmp_path), best=model)) == ["model.keras", "saved_model", "best.keras"]
    assert [path.name for path in (tmp_path / "export").iterdir()] == ["model.weights.h5"]
    other.load_weights(tmp_path / "export" / "model.weights.h5")
    np.testing.assert_array_equal(other.get_weights()[0], model.get_weights()[0])


def test_a_model_that_cannot_be_exported_at_all_fails_with_the_first_reason(tmp_path: Path) -> None:
    class Neither:
        def save_weights(self, _: str) -> None:
            raise ValueError("no weights")

        def save(self, _: str) -> None:
            raise TypeError("no config")

        def export(self, _: str) -> None:
            raise ValueError("no signature")

    with pytest.raises(TypeError, match="no config"):
        exports.export(Neither(), str(tmp_path))
    assert not (tmp_path / "export").exists()


# Exporters. ---------------------------------------------------------------------------------------


def setup(model_dir: Path, *exporters: Exporter) -> TrainingTask:
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "model_dir": str(model_dir)})
    eval_spec = EvalSpec(lambda context: None, exporters=exporters)
    return TrainingTask(spec, tasks_of(spec)[0], Workload("mine.py", lambda: None, eval_spec=eval_spec), None)


class Words:
    """An exporter that writes what stands for a model, and cannot write all of it where it is empty."""

    def export(self, model: str, folder: Path) -> None:
        (folder / "begun").write_text("")
        if not model:
            raise OSError("no space")
        (folder / "model").write_text(model)


class Latest(Words, LatestExporter): ...


class Final(Words, FinalExporter): ...


class Best(Words, BestExporter): ...


def run(job: TrainingTask, model: Any, loss: float, last: bool = False) -> None:
    exports.run_exporters(job, model, {"loss": loss, "accuracy": 0.5}, last)


def written(model_dir: Path, name: str) -> tuple[str, float]:
    """Which model is there, and its loss."""
    folder = model_dir / "exporters" / name
    return (folder / "model").read_text(), json.loads((folder / "figures.json").read_text())["loss"]


def test_without_figures_those_that_need_none_write(tmp_path: Path) -> None:
    """Where the last checkpoint cannot be scored."""
    exports.run_exporters(setup(tmp_path, Latest("latest"), Best("best"), Final("final")), "model", {}, last=True)
    assert sorted(path.name for path in (tmp_path / "exporters").iterdir()) == ["final", "latest"]


def test_an_exporter_writes_the_model_and_the_figures_it_was_chosen_for(tmp_path: Path) -> None:
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(1)])
    run(setup(tmp_path, LatestExporter("newest")), model, 0.25)
    assert [path.name for path in (tmp_path / "exporters").iterdir()] == ["newest"]
    folder = tmp_path / "exporters" / "newest"
    assert sorted(path.name for path in folder.iterdir()) == ["figures.json", "model.keras"]
    assert json.loads((folder / "figures.json").read_text()) == {"loss": 0.25, "accuracy": 0.5}
    x = np.ones((1, 2), np.float32)
    np.testing.assert_allclose(keras.models.load_model(folder / "model.keras")(x), model(x))


def test_the_latest_is_written_each_time(tmp_path: Path) -> None:
    job = setup(tmp_path, Latest("latest"))
    for model, loss in (("a", 0.5), ("b", 0.7)):
        run(job, model, loss)
        assert written(tmp_path, "latest") == (model, loss)


def test_the_final_one_is_written_only_at_last(tmp_path: Path) -> None:
    job = setup(tmp_path, Final("final"))
    run(job, "a", 0.5)
    assert list(tmp_path.iterdir()) == []
    run(job, "b", 0.7, last=True)
    assert written(tmp_path, "final") == ("b", 0.7)


def test_the_best_is_written_where_the_loss_is_smaller_than_that_of_its_last_export(tmp_path: Path) -> None:
    for model, loss, there in [
        ("a", 0.5, ("a", 0.5)),
        ("b", 0.7, ("a", 0.5)),
        ("c", 0.5, ("a", 0.5)),
        ("d", 0.4, ("d", 0.4)),
        ("e", 0.45, ("d", 0.4)),
    ]:
        run(setup(tmp_path, Best("best")), model, loss)
        assert written(tmp_path, "best") == there
    run(setup(tmp_path, Best("best")), "f", 0.6, last=True)
    assert written(tmp_path, "best") == ("d", 0.4), "the last one is no exception"


def test_the_best_export_is_rewritten_if_its_figures_are_damaged(tmp_path: Path) -> None:
    job = setup(tmp_path, Best("best"))
    run(job, "a", 0.5)
    (tmp_path / "exporters" / "best" / "figures.json").write_text("{")
    run(job, "b", 0.7)
    assert written(tmp_path, "best") == ("b", 0.7)


def test_each_exporter_has_a_folder_and_a_best_one_of_its_own(tmp_path: Path) -> None:
    run(setup(tmp_path, Best("one")), "a", 0.5)
    run(setup(tmp_path, Best("one"), Best("two"), Final("three")), "b", 0.7)
    assert (written(tmp_path, "one"), written(tmp_path, "two")) == (("a", 0.5), ("b", 0.7))
    assert not (tmp_path / "exporters" / "three").exists()


def test_an_export_that_fails_leaves_the_one_before_whole_and_is_forgotten(tmp_path: Path) -> None:
    job = setup(tmp_path, Latest("latest"))
    run(job, "a", 0.5)
    (tmp_path / "exporters" / "latest" / "old").write_text("")
    with pytest.raises(OSError, match="no space"):
        run(job, "", 0.4)
    assert written(tmp_path, "latest") == ("a", 0.5)
    run(job, "c", 0.3)
    assert written(tmp_path, "latest") == ("c", 0.3)
    assert [path.name for path in (tmp_path / "exporters").iterdir()] == ["latest"]
    names = sorted(path.name for path in (tmp_path / "exporters" / "latest").iterdir())
    assert names == ["begun", "figures.json", "model"], "nothing of the one before is left"


def test_without_exporters_or_an_eval_spec_nothing_is_written(tmp_path: Path) -> None:
    run(setup(tmp_path), "a", 0.5, last=True)
    without = setup(tmp_path, Latest("latest"))
    bare = TrainingTask(without.spec, without.task, Workload("mine.py", lambda: None), None)
    run(bare, "a", 0.5, last=True)
    assert list(tmp_path.iterdir()) == []
