"""JSON files written by other programs."""

from pathlib import Path

import pytest
from pydantic import TypeAdapter

from trainer.model_dir.files import json_object, read_json, typed, write_json
from trainer.model_dir.result import JobEvent


@pytest.mark.parametrize("text", ["", "cut o", "[1]", "3", "null", b"\xff\xfe\xff", "[" * 100_000, '{"a": '])
def test_what_is_no_json_object_counts_as_an_empty_one(text: str | bytes) -> None:
    assert json_object(text) == {}


def test_a_json_object_is_read() -> None:
    assert json_object(b'{"steps": 5, "result": {"y": [1]}}') == {"steps": 5, "result": {"y": [1]}}


def test_a_text_that_is_not_unicode_is_read() -> None:
    """A message may quote the name of a file: os.fsdecode returns lone surrogates for bytes that are not UTF-8."""
    found = typed(TypeAdapter(JobEvent), {"time": 1.5, "text": "é: caf\udce9.npz"}, newest=1)
    assert found == JobEvent(1.5, "é: caf?.npz")


def test_two_writers_of_a_file_have_temporary_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in containers of two nodes, where both have the same process id."""
    path, replace, interrupted = tmp_path / "state.json", Path.replace, list[Path]()

    def meanwhile(temporary: Path, target: Path) -> Path:
        if not interrupted:
            interrupted.append(temporary)
            write_json(path, {"writer": 2})
        return replace(temporary, target)

    monkeypatch.setattr(Path, "replace", meanwhile)
    write_json(path, {"writer": 1})
    assert read_json(path) == {"writer": 1}
    assert [each.name for each in tmp_path.iterdir()] == ["state.json"]
