"""What others may load: whole or not there."""

from __future__ import annotations

from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from trainer.runtime import exports
from trainer.workloads import digits


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
