"""What is collected of a job on a Docker Engine: the files in an archive that it streams, and ends of containers."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Iterator
from typing import Any

import pytest

from trainer.debug import ends
from trainer.debug.ends import Ends
from trainer.debug.evidence import Evidence, Moment, TaskEvidence
from trainer.targets.compose import evidence


def packed(files: dict[str, bytes]) -> Iterator[bytes]:
    """A tar archive in chunks, as an engine streams a folder of a container."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        folder, link = tarfile.TarInfo("logs"), tarfile.TarInfo("logs/link.log")
        folder.type, link.type, link.linkname = tarfile.DIRTYPE, tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(folder)
        archive.addfile(link)
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    yield from (whole.getvalue()[at : at + 1000] for at in range(0, len(whole.getvalue()), 1000))


class Container:
    """One whose folder is an archive."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks

    def get_archive(self, path: str) -> tuple[Iterator[bytes], dict[str, object]]:
        return self._chunks, {"name": path}


def members(chunks: Iterator[bytes], seconds: float = 60.0) -> list[tuple[str, int, Ends | None]]:
    container: Any = Container(chunks)
    return list(evidence._members(container, "/workspace/runs/j", time.monotonic() + seconds))


def test_regular_files_are_listed_and_those_that_are_wanted_are_read() -> None:
    files = {"logs/worker-0.log": b"a line\n", "checkpoints/step-5/variables.npz": b"x" * 5000, "result.json": b"{}"}
    assert members(packed(files)) == [
        ("logs/worker-0.log", 7, Ends(b"a line\n")),
        ("checkpoints/step-5/variables.npz", 5000, None),
        ("result.json", 2, Ends(b"{}")),
    ]


def test_a_long_log_is_read_once_and_kept_at_both_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "MOST_BYTES", 4000)
    content = b"".join(b"%09d\n" % number for number in range(2000))
    ((_, size, found),) = members(packed({"logs/worker-0.log": content}))
    assert found
    assert content.startswith(found.head)
    assert content.endswith(found.tail)
    assert found.head.endswith(b"\n")
    assert found.left_out == f"{size - len(found.head) - len(found.tail):,} of 20,000 bytes"


@pytest.mark.parametrize("limit", ["bytes", "seconds"])
def test_not_more_is_read_than_there_is_room_and_time_for(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    if limit == "bytes":
        monkeypatch.setattr(evidence, "MOST_BYTES", 2000)
    with pytest.raises(OSError, match="not all files were read"):
        members(packed({"checkpoints/step-5/variables.npz": b"x" * 9000}), -1 if limit == "seconds" else 60)


def test_the_start_and_the_end_of_a_container_are_moments_of_its_task() -> None:
    facts = Evidence("j", "here", tasks={"worker:0": TaskEvidence("exited", 2), "worker:1": TaskEvidence("running")})
    begun, over = "1970-01-01T00:00:05.5Z", "1970-01-01T00:00:09.123456789Z"
    evidence._note_end(facts, "worker:0", {"StartedAt": begun, "FinishedAt": over, "Status": "exited"})
    evidence._note_end(
        facts, "worker:1", {"StartedAt": begun, "FinishedAt": "0001-01-01T00:00:00Z", "Status": "running"}
    )
    evidence._note_end(facts, "", {"StartedAt": begun, "FinishedAt": over})  # a service that is no task
    assert facts.moments == [
        Moment("its container was started", "worker:0", 5.5),
        Moment("its container was started", "worker:1", 5.5),
    ]
    assert facts.tasks["worker:0"].ended == pytest.approx(9.123456789)
    assert facts.tasks["worker:1"].ended is None
