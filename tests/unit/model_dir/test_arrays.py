import hashlib
import weakref
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from trainer.model_dir import arrays
from trainer.model_dir.arrays import Array, DamagedError


def several() -> dict[str, Array]:
    rng = np.random.default_rng(3)
    return {
        "large": rng.random((arrays.CHUNK // 8 + 5, 3)),
        "columns": np.asfortranarray(rng.integers(0, 9, (5, 7), np.int16)),
        "scalar": np.array(11, np.int64),
        "none": np.zeros((0, 4), np.float16),
        "flag": np.array([True, False]),
        "every_other": rng.random(9, np.float32)[::2],
    }


def equal(one: dict[str, Array], other: dict[str, Array]) -> bool:
    def same(a: Array, b: Array) -> bool:
        return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())

    return list(one) == list(other) and all(same(one[name], other[name]) for name in one)


def test_numpy_reads_what_is_written_and_the_hash_is_that_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    with path.open("wb") as file:
        digest = arrays.write(file, several().items())
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    with np.load(path, allow_pickle=False) as archive:
        assert equal(dict(archive), several())
    assert equal(dict(arrays.read(path, digest)), several())


def test_files_of_numpy_itself_are_read_as_those_of_earlier_versions(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    np.savez(path, **several())  # type: ignore[arg-type]
    assert equal(dict(arrays.read(path, hashlib.sha256(path.read_bytes()).hexdigest())), several())


def test_a_file_with_any_wrong_byte_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "v.npz"
    small = {"a": np.arange(5.0), "b": np.arange(3, dtype=np.int32)}
    with path.open("wb") as file:
        digest = arrays.write(file, small.items())
    whole = path.read_bytes()
    for i in range(len(whole)):
        for damaged in (whole[:i] + bytes([whole[i] ^ (1 << i % 8)]) + whole[i + 1 :], whole[:i]):
            path.write_bytes(damaged)
            with pytest.raises(DamagedError):
                list(arrays.read(path, digest))
    path.write_bytes(whole + b"more")
    with pytest.raises(DamagedError):
        list(arrays.read(path, digest))
    path.write_bytes(whole)
    assert equal(dict(arrays.read(path, digest)), small)


def test_one_array_at_a_time_is_in_memory(tmp_path: Path) -> None:
    path, alive = tmp_path / "v.npz", list[weakref.ref[Array]]()

    def made() -> Iterator[tuple[str, Array]]:
        for i in range(4):
            assert all(each() is None for each in alive), "those before are released when the next is asked for"
            array = np.full(arrays.CHUNK // 3, float(i))
            alive.append(weakref.ref(array))
            yield str(i), array
            del array

    with path.open("wb") as file:
        digest = arrays.write(file, made())
    assert len(alive) == 4
    alive.clear()
    for name, array in arrays.read(path, digest):
        assert all(each() is None for each in alive)
        assert array[-1] == int(name)
        alive.append(weakref.ref(array.base if array.base is not None else array))
        del array
    assert len(alive) == 4


def test_large_arrays_get_the_same_memory_if_they_may(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "LARGE", 4000)
    given = {str(count): np.full(count, float(count)) for count in (700, 9, 600, 800, 10)}
    path = tmp_path / "v.npz"
    with path.open("wb") as file:
        digest = arrays.write(file, given.items())
    for reuse in (False, True):
        read = []
        for name, array in arrays.read(path, digest, reuse=reuse):
            assert (array == given[name]).all()
            read.append(array)
        first, _, second, *_ = read
        assert np.shares_memory(first, second) == reuse
    assert [(array == given[name]).all() for name, array in zip(given, read, strict=True)] == [0, 1, 1, 1, 1]
