"""Files of init_from that come from anywhere: what they declare is not believed, and nothing else is read for them."""

from __future__ import annotations

import stat
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import h5py
import keras
import numpy as np
import pytest

from tests.unit.training import jobs
from trainer.job.errors import UserError
from trainer.training.model.state import TrainState
from trainer.training.weights import init_from
from trainer.training.weights.init_from import initial_values

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy:DeprecationWarning")
L = keras.layers


def begun(model: Any, path: Path) -> tuple[dict[str, Any], str]:
    return initial_values(jobs.setup(init_from={"path": str(path)}), TrainState(model, keras.optimizers.SGD()))


SECRET = b"password=hunter2-0123456789abcdef"[:32]


def external(group: Any, folder: Path) -> None:
    (folder / "secret.txt").write_bytes(SECRET)
    group.create_dataset("0", (1, 8), "float32", external=[(str(folder / "secret.txt"), 0, h5py.h5f.UNLIMITED)])


def virtual(group: Any, folder: Path) -> None:
    with h5py.File(folder / "other.h5", "w") as other:
        other["x"] = np.ones((1, 8), "float32")
    layout = h5py.VirtualLayout((1, 8), "float32")
    layout[:] = h5py.VirtualSource(str(folder / "other.h5"), "x", (1, 8))
    group.create_virtual_dataset("0", layout)


def external_link(group: Any, folder: Path) -> None:
    with h5py.File(folder / "other.h5", "w") as other:
        other["x"] = np.ones((1, 8), "float32")
    group["0"] = h5py.ExternalLink(str(folder / "other.h5"), "x")


def soft_link(group: Any, _: Path) -> None:
    group.file["kept"] = np.ones((1, 8), "float32")
    group["0"] = h5py.SoftLink("/kept")


def of_texts(group: Any, _: Path) -> None:
    group["0"] = np.array(["a", "b"], dtype=object)


def one_large_piece(group: Any, _: Path) -> None:
    group.create_dataset("0", (1, 8), "float32", maxshape=(None, None), chunks=(1 << 14, 1 << 14), compression="gzip")


def declared_tib(group: Any, _: Path) -> None:
    group.create_dataset("0", (1 << 34, 16), "float32", chunks=(1 << 10, 16))


HOSTILE = {
    "external storage": (external, "layers/dense/vars/0 refers to another file, which is not read$"),
    "a virtual dataset": (virtual, "layers/dense/vars/0 refers to other datasets, which are not read$"),
    "an external link": (external_link, "layers/dense/vars/0 is a link to elsewhere, which is not followed$"),
    "a soft link": (soft_link, "layers/dense/vars/0 is a link to elsewhere, which is not followed$"),
    "texts": (of_texts, "layers/dense/vars/0 has values that are no numbers: object$"),
    "a piece that is larger than all": (one_large_piece, "is stored in pieces that are larger than itself$"),
    "more than there is": (declared_tib, "none of its 2 variables has the name and shape of one of the model's 2"),
}


def dense() -> Any:
    return keras.Sequential([keras.Input((1,)), L.Dense(8, name="dense")])


@pytest.mark.parametrize("what", HOSTILE)
@pytest.mark.parametrize("kind", ["h5", "keras"])
def test_a_file_is_data_and_of_its_own(tmp_path: Path, what: str, kind: str) -> None:
    if kind == "keras" and what in ("texts", "a soft link", "an external link", "a virtual dataset"):
        pytest.skip("is read by the same code")
    make, message = HOSTILE[what]
    path = tmp_path / "m.weights.h5"
    with h5py.File(path, "w") as file:
        group = file.create_group("layers/dense/vars")
        make(group, tmp_path)
        group["1"] = np.zeros(9, "float32")
    if kind == "keras":
        with zipfile.ZipFile(tmp_path / "m.keras", "w") as archive:
            archive.write(path, "model.weights.h5")
        path = tmp_path / "m.keras"
    with pytest.raises(UserError, match=rf"^init_from: {path}: .*{message}") as caught:
        begun(dense(), path)
    assert SECRET.decode() not in str(caught.value)


def test_a_compressed_archive_is_read_up_to_a_length(tmp_path: Path) -> None:
    dense().save(tmp_path / "own.keras")
    path, bomb = tmp_path / "m.keras", tmp_path / "bomb.keras"
    with zipfile.ZipFile(tmp_path / "own.keras") as own, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("model.weights.h5", own.read("model.weights.h5"))
    assert "2 of 2 variables" in begun(dense(), path)[1]
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as made, made.open("model.weights.h5", "w") as entry:
        for _ in range(16):
            entry.write(bytes(1 << 24))
    with pytest.raises(UserError, match=r"bomb.keras: its model.weights.h5 is more than 100 times as long as in"):
        begun(dense(), bomb)
    link = zipfile.ZipInfo("model.weights.h5")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(bomb, "w") as made:
        made.writestr(link, "/etc/passwd")
    with pytest.raises(UserError, match=r"its model.weights.h5 is no regular file$"):
        begun(dense(), bomb)


def test_the_process_that_reads_has_none_of_the_job_s_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    asked = dict[str, str]()

    def started(*_: object, env: dict[str, str], **__: object) -> None:
        asked.update(env)
        raise OSError

    monkeypatch.setattr(subprocess, "Popen", started)
    with pytest.raises(OSError, match=r"^$"):
        init_from._File("m.keras")
    assert "hf_secret" not in asked.values()
    assert set(asked) <= {*init_from._NEEDED, *init_from._ENVIRON}
