"""Event files, as TensorBoard's own reader reads them, which checks their checksums."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from trainer.supervisor.live_page import event_file


def read(*records: bytes) -> list[Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "events.out.tfevents.1.host"
        path.write_bytes(b"".join(records))
        return list(EventFileLoader(str(path)).Load())


STEPS = st.integers(0, 2**63 - 1)
TIMES = st.floats(0, 1e12)
TAGS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40)


@settings(deadline=None)
@given(TIMES, STEPS, st.dictionaries(TAGS, st.floats(width=32), min_size=1, max_size=5))
def test_scalars_are_read_as_they_were_written(time: float, step: int, values: dict[str, float]) -> None:
    first, event = read(event_file.header(time), event_file.scalars(time, step, values))
    assert (first.file_version, first.wall_time) == ("brain.Event:2", time)
    assert (event.wall_time, event.step) == (time, step)
    assert {each.tag: repr(float(each.tensor.float_val[0])) for each in event.summary.value} == {
        tag: repr(float(value)) for tag, value in values.items()
    }


@settings(deadline=None)
@given(TIMES, STEPS, TAGS, st.text(st.characters(codec="utf-8"), max_size=5000))
def test_texts_are_read_as_they_were_written(time: float, step: int, tag: str, text: str) -> None:
    (event,) = read(event_file.text(time, step, tag, text))
    (value,) = event.summary.value
    assert (event.step, value.tag, value.metadata.plugin_data.plugin_name) == (step, tag, "text")
    assert [each.decode() for each in value.tensor.string_val] == [text]


@pytest.mark.parametrize("text", ["\ud800", "a\0b"])
def test_a_text_that_is_no_unicode_is_no_error(text: str) -> None:
    (event,) = read(event_file.text(1.0, 1, "tag", text))
    assert len(event.summary.value) == 1


def damaged() -> Iterator[bytes]:
    whole = event_file.text(1.0, 1, "tag", "text")
    for at in range(8, len(whole)):
        yield whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]


def test_the_checksums_cover_every_byte() -> None:
    """Otherwise the reader above would prove little of them."""
    assert all(read(event_file.header(1.0), each)[1:] == [] for each in damaged())
