import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.unit.workloads.files import ESTIMATOR, MODEL, file, problem, spec_of
from trainer.workloads.digests import digest
from trainer.workloads.load import load_workload


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
