"""result.json as it is read back."""

import json
from pathlib import Path
from typing import Any

import pytest

from trainer.job.errors import UserError
from trainer.model_dir import layout, result
from trainer.model_dir.result import Computed, JobEvent, Result, Training

TRAINED = Training(90, {"accuracy": 0.75, "top 5": 1.0}, None, 4.5, {"import": 4.5}, 0.25, 7)
COMPUTED = Computed({"sum": 499_500, "slices": [1, 2], "test_x": 1})


def result_with(figures: Training | Computed) -> Result:
    events = [JobEvent(1.7e9, "generation 1 formed: 1 tasks")]
    return Result("j", "graph", figures, 3.5, 1, ["why"], {"worker:0": "x"}, events, {"keras": "3"}, {"a": None}, {})


@pytest.mark.parametrize("figures", [TRAINED, COMPUTED], ids=["trained", "computed"])
def test_what_is_written_is_what_is_read(tmp_path: Path, figures: Training | Computed) -> None:
    assert result.read(str(tmp_path)) is None
    result.write(str(tmp_path), result_with(figures))
    assert result.read(str(tmp_path)) == result_with(figures)


def test_a_field_that_an_earlier_or_a_later_version_has_or_lacks_harms_nothing() -> None:
    written = result_with(TRAINED).document()
    for name in ("version", "events", "seconds_by_phase", "seconds_saving", "skipped_batches"):
        del written[name]
    found = result.parse({**written, "colour": "blue"})
    assert (found.version, found.events, found.figures) == (
        1,
        [],
        Training(90, TRAINED.test, None, 4.5, {}, None, None),
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version: 2: this trainer reads versions up to 1"),
        ({"status": "failed"}, "status: Input should be 'succeeded'"),
        ({"warnings": 3}, "warnings: Input should be a valid array"),
    ],
)
def test_what_cannot_be_read_names_the_file_and_the_reason(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    path = layout.make_own(tmp_path) / layout.RESULT
    path.write_text(json.dumps({**result_with(TRAINED).document(), **changes}))
    with pytest.raises(UserError) as caught:
        result.read(str(tmp_path))
    way_out = "use the version of trainer that wrote it, or choose another model_dir"
    assert str(caught.value) == f"model_dir: {path}: cannot be read: {message}; {way_out}"


@pytest.mark.parametrize("content", [b"", b"[]", b"cut o", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_no_result(tmp_path: Path, content: bytes) -> None:
    (layout.make_own(str(tmp_path)) / "result.json").write_bytes(content)
    assert result.read(str(tmp_path)) is None


def test_a_job_that_version_0_2_finished_is_finished(tmp_path: Path) -> None:
    (layout.make_own(tmp_path) / "result.json").write_text(
        '{"status": "succeeded", "steps": 5, "fits": {"train.seed": 7}}'
    )
    found = result.finished(str(tmp_path))
    assert found is not None
    assert (found.key, found.steps) == ({"train.seed": 7}, 5)


def test_a_result_may_have_as_many_steps_as_a_program_may_report(tmp_path: Path) -> None:
    (layout.make_own(tmp_path) / "result.json").write_text(
        f'{{"status": "succeeded", "steps": {2**31}, "compatibility_key": {{}}}}'
    )
    found = result.finished(str(tmp_path))
    assert found is not None
    assert found.steps == 2**31
