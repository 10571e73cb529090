"""Copies of data in a folder of the node."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from trainer.job.errors import UserError
from trainer.job.load import build
from trainer.supervisor.task import data_copies

SIZES = {"a.bin": 3_000_000, "sub/b.bin": 10, "sub/c.bin": 0}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for number, (name, size) in enumerate(SIZES.items()):
        (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "data" / name).write_bytes(bytes([number]) * size)
        os.utime(tmp_path / "data" / name, (1e9 + number, 1e9 + number))
    return tmp_path / "data"


def copy(
    data: Path, report: Callable[[str], None] = lambda _: None, stopped: Callable[[], bool] = lambda: False
) -> Path:
    return data_copies.copied("train", data, data.parent / "cache", report, stopped)


def contents(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def problem(data: Path) -> str:
    with pytest.raises(UserError) as caught:
        copy(data)
    (line,) = caught.value.problems
    return line


def test_a_copy_is_made_once_with_its_manifest(data: Path) -> None:
    made = copy(data)
    assert contents(made) == contents(data)
    sums = "".join(f"{hashlib.sha256((data / name).read_bytes()).hexdigest()}  {name}\n" for name in SIZES)
    assert (made.parent / f"{made.name}.sha256").read_text() == sums
    before = (made / "a.bin").stat().st_ctime_ns
    assert copy(data) == made
    assert (made / "a.bin").stat().st_ctime_ns == before


def test_changed_data_are_copied_anew(data: Path) -> None:
    made = copy(data)
    (data / "sub/b.bin").write_bytes(b"another")
    again = copy(data)
    assert again != made
    assert contents(again)["sub/b.bin"] == b"another"


def test_a_copy_that_was_interrupted_goes_on(data: Path) -> None:
    """By SIGKILL, which also frees the lock."""
    program = (
        "import os, sys; from pathlib import Path; from trainer.supervisor.task import data_copies as copies\n"
        "copies.REPORT_SECONDS = -1\n"
        "copies.copied('train', Path(sys.argv[1]), Path(sys.argv[2]),"
        " lambda text: os.kill(os.getpid(), 9) if 'sub' in str(list(Path(sys.argv[2]).rglob('sub'))) else None,"
        " lambda: False)"
    )
    ended = subprocess.run([sys.executable, "-c", program, str(data), str(data.parent / "cache")])
    assert ended.returncode == -9
    (part,) = (data.parent / "cache").glob("*.part")
    assert (part / "a.bin").stat().st_size == SIZES["a.bin"]
    before = (part / "a.bin").stat().st_ino, (part / "a.bin").stat().st_ctime_ns
    assert contents(made := copy(data)) == contents(data)
    assert ((made / "a.bin").stat().st_ino, (made / "a.bin").stat().st_ctime_ns) == before, "not copied again"
    assert not part.exists()


def test_tasks_of_a_node_share_a_copy(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_copies, "REPORT_SECONDS", -1)
    begun, waiting, reported, made = threading.Event(), threading.Event(), list[str](), dict[int, Path]()

    def first(text: str) -> None:
        if "copied" in text:
            begun.set()
            assert waiting.wait(10)

    def second(text: str) -> None:
        if "another task" in text:
            reported.append(text)
            waiting.set()

    def run(number: int, report: Callable[[str], None]) -> None:
        made[number] = copy(data, report)

    threads = [threading.Thread(target=run, args=each) for each in ((1, first), (2, second))]
    threads[0].start()
    assert begun.wait(10)
    threads[1].start()
    for thread in threads:
        thread.join(10)
    assert made[1] == made[2]
    assert set(reported) == {"data.train: another task of this node copies it: 0.00 of 0.00 GB copied, 0 MB/s"}


def test_a_task_that_ends_stops_copying(data: Path) -> None:
    with pytest.raises(data_copies._Stopped):
        copy(data, stopped=lambda: True)


def test_a_copy_is_compared_with_the_sums_beside_the_data(data: Path) -> None:
    command = ["sha256sum", "a.bin", "./sub/b.bin"]
    sums = subprocess.run(command, cwd=data, stdout=subprocess.PIPE, text=True, check=True).stdout
    (data / "SHA256SUMS").write_text(sums)
    copy(data)
    (data / "SHA256SUMS").write_text(sums.replace(sums[:8], "0" * 8))
    os.utime(data / "SHA256SUMS", (1e9, 1e9))
    found = hashlib.sha256((data / "a.bin").read_bytes()).hexdigest()
    assert problem(data) == (
        f"data.train: {data}/a.bin: SHA-256 is {found}, SHA256SUMS has {'0' * 8 + found[8:]}; correct the file, or "
        "SHA256SUMS"
    )


def test_sums_that_name_their_own_file_are_compared_for_the_others(data: Path) -> None:
    command = "find . -type f -exec sha256sum {} + > SHA256SUMS"
    subprocess.run(["sh", "-c", command], cwd=data, check=True)
    assert "./SHA256SUMS" in (data / "SHA256SUMS").read_text()
    made = copy(data)
    assert contents(made) == contents(data)
    assert copy(data) == made
    (data / "sub/b.bin").write_bytes(b"changed")
    assert problem(data).startswith(f"data.train: {data}/sub/b.bin: SHA-256 is ")


def test_sums_that_cannot_be_compared_are_refused(data: Path) -> None:
    sha = "0123456789abcdef" * 4
    for line in (f"SHA256 (a.bin) = {sha}", f"{sha}", f"{sha[1:]}  a.bin", f"{sha} a.bin", f"\\{sha}  a\\nb"):
        (data / "SHA256SUMS").write_text(f"\n{line}\n")
        assert problem(data).startswith(
            f"data.train: {data}/SHA256SUMS:2: {line!r}: must be 64 hexadecimal digits, two "
        )
    (data / "SHA256SUMS").write_bytes(f"{sha}  gone.bin\r\n{sha} *sub/../none\r\n".encode())
    assert problem(data) == (
        f"data.train: {data}/gone.bin: is missing, SHA256SUMS has it and 1 more; restore the file, or correct "
        "SHA256SUMS"
    )


def test_an_existing_copy_is_compared_with_the_sums(data: Path) -> None:
    sha = hashlib.sha256((data / "a.bin").read_bytes()).hexdigest()
    (data / "SHA256SUMS").write_text(f"{sha.upper()}  ./a.bin\n")
    made = copy(data)
    assert copy(data) == made
    manifest = made.with_name(f"{made.name}.sha256")
    manifest.write_text(manifest.read_text().replace(sha, "0" * 64))
    assert copy(data) == made  # the list beside the copy proves nothing


def with_sums(data: Path) -> None:
    (data / "SHA256SUMS").write_text(f"{hashlib.sha256((data / 'a.bin').read_bytes()).hexdigest()}  a.bin\n")


def poison(file: Path) -> None:
    """As another job of the node may: other bytes, and the size and time of before."""
    about = file.stat()
    file.write_bytes(b"x" * about.st_size)
    os.utime(file, ns=(about.st_atime_ns, about.st_mtime_ns))


def test_a_copy_is_believed_by_its_bytes_where_the_data_have_sums(data: Path) -> None:
    with_sums(data)
    made = copy(data)
    poison(made / "a.bin")
    wrong = f"data.train: {made / 'a.bin'}: is not the file that SHA256SUMS names; remove {made}"
    assert problem(data) == wrong
    (made.parent / f"{made.name}.sha256").write_text((data / "SHA256SUMS").read_text())
    assert problem(data) == wrong


def test_the_tasks_of_a_job_compare_a_copy_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_sums(data)
    made, compared, compare = copy(data), list[str](), data_copies._compare

    def counted(*given: Any) -> None:
        compared.append("x")
        compare(*given)

    monkeypatch.setattr(data_copies, "_compare", counted)
    for key in (b"run 1", b"run 1", b"run 2", b"", b"", b"run 2"):
        data_copies.copied("train", data, data.parent / "cache", lambda _: None, lambda: False, key)
    assert len(compared) == 4
    poison(made / "a.bin")
    with pytest.raises(UserError, match="is not the file that SHA256SUMS names"):
        data_copies.copied("train", data, data.parent / "cache", lambda _: None, lambda: False, b"run 2")


def test_what_an_interrupted_copy_has_is_compared_too(data: Path) -> None:
    with_sums(data)
    made = copy(data)
    made.rename(part := made.with_name(f"{made.name}.part"))
    poison(part / "a.bin")
    assert problem(data).startswith(f"data.train: {part / 'a.bin'}: is not the file that SHA256SUMS names")


def test_a_copy_that_another_user_has_made_or_may_change_is_not_believed(data: Path) -> None:
    made = copy(data)
    owner = made.stat().st_uid
    made.chmod(0o777)
    assert f"{made}: is no folder that user {owner} alone may change" in problem(data)
    made.chmod(0o755)
    if owner == 0:
        os.chown(made, 65534, 65534)
        assert "(it belongs to user 65534, mode drwxr-xr-x); remove it" in problem(data)
    shutil.rmtree(made)
    made.symlink_to(data)
    assert f"belongs to user {owner}, mode l" in problem(data)


def test_a_folder_that_cannot_be_read_is_named(data: Path, unprivileged: None) -> None:
    (data / "sub/b.bin").chmod(0)
    assert problem(data) == f"data.train: copy: {data}/sub/b.bin: Permission denied"
    (data / "sub").chmod(0)
    assert problem(data) == f"data.train: copy: {data}/sub: Permission denied"
    (data / "sub").chmod(0o700)
    (data / "sub/b.bin").chmod(0o600)
    (data / "lost+found").mkdir(mode=0)
    assert set(contents(copy(data))) == set(SIZES), "only root can read that folder of a volume with ext4"


def test_links_are_followed_unless_they_never_end(data: Path) -> None:
    (data.parent / "elsewhere").mkdir()
    (data.parent / "elsewhere/d.bin").write_bytes(b"d")
    (data / "one").symlink_to("../elsewhere")
    (data / "two").symlink_to("../elsewhere")
    assert set(contents(copy(data))) == {*SIZES, "one/d.bin", "two/d.bin"}
    (data.parent / "elsewhere/back").symlink_to("../data")
    assert problem(data) == f"data.train: {data}/two/back: is a link to a folder above itself; remove the link"
    (data.parent / "elsewhere/back").unlink()
    (data / "broken").symlink_to("nowhere")
    assert problem(data) == f"data.train: copy: {data}/broken: No such file or directory"
    (data / "broken").unlink()
    os.mkfifo(data / "pipe")
    assert problem(data) == f"data.train: {data}/pipe: is neither a file nor a folder; move it elsewhere"


def test_any_name_that_the_file_system_has_is_copied(data: Path) -> None:
    """Without UTF-8, and with line breaks, as of other archives' tools."""
    latin, lines = b"gr\xf6\xdfe.bin", b"two\nlines\r"
    for name in (latin, lines):
        (data / "sub" / os.fsdecode(name)).write_bytes(name)
    (data / "SHA256SUMS").write_bytes(hashlib.sha256(latin).hexdigest().encode() + b"  sub/" + latin)
    assert contents(made := copy(data)) == contents(data)
    assert copy(data) == made


def test_listing_a_folder_is_reported_and_ends_with_the_task(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_copies, "REPORT_SECONDS", -1)
    reported: list[str] = []
    with pytest.raises(data_copies._Stopped):
        copy(data, reported.append, lambda: len(reported) == 2)
    assert reported == ["data.train: 0 files found so far", "data.train: 1 files found so far"]


def test_a_copy_that_was_changed_is_refused(data: Path) -> None:
    made = copy(data)
    (made / "sub/b.bin").write_bytes(b"x" * 10)
    assert problem(data) == f"data.train: {made}/sub/b.bin: was changed after it was copied; remove {made}"


def test_a_file_that_is_missing_in_a_copy_is_refused(data: Path) -> None:
    made = copy(data)
    (made / "sub/b.bin").unlink()
    assert problem(data) == f"data.train: {made}/sub/b.bin: was changed after it was copied; remove {made}"


def test_a_full_disk_and_a_folder_without_permission_are_named(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 4, 5))
    assert "copy: 3,000,010 bytes are left to copy, and " in problem(data)
    (data.parent / "cache2").write_text("no folder")
    with pytest.raises(UserError, match=r"^data.train: copy: .*cache2.*: (File exists|Not a directory)$"):
        data_copies.copied("train", data, data.parent / "cache2", lambda _: None, lambda: False)


def test_a_ps_copies_nothing() -> None:
    data = {"train": {"path": "/a", "copy": "node"}, "val": {"path": "/b"}}
    spec = build({"name": "j", "strategy": "parameter_server", "tasks": {"ps": 1, "worker": 1}, "data": data})
    assert data_copies.wanted(spec, "ps") == {}
    assert data_copies.wanted(spec, "worker") == data_copies.wanted(spec, "chief") == {"train": Path("/a")}
