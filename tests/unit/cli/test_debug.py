"""`trainer debug`: which job it means, and what it prints."""

from __future__ import annotations

import json
import re
import zipfile
from pathlib import Path

import pytest

from tests.unit.cli import fake
from trainer.cli import main as cli
from trainer.debug.evidence import Evidence
from trainer.job.errors import Exit
from trainer.model_dir import layout
from trainer.model_dir import state as job_state
from trainer.model_dir.state import End, State
from trainer.targets import base
from trainer.targets.base import Job

SPEC = "{name: j, strategy: multi_worker_mirrored, tasks: {worker: 2}, env: {API_KEY: hunter2hunter2}}"


@pytest.fixture(autouse=True)
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(base.TARGETS, "fake", base.Entry("tests.unit.cli.fake:Fake", options=frozenset(base.OPTIONS)))
    monkeypatch.setattr(fake, "ASKED", [])
    Path("job.yaml").write_text(SPEC)
    return "job.yaml"


def files() -> dict[str, str]:
    """Of the only archive here, by their paths within its folder."""
    (path,) = Path().glob("*.zip")
    with zipfile.ZipFile(path) as found:
        return {name.partition("/")[2]: found.read(name).decode() for name in found.namelist()}


def test_a_target_fills_the_archive_and_the_verdict_is_printed(spec: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["debug", "--target", "fake", spec, "--set", "train.steps=7"]) == Exit.OK
    (asked,) = fake.ASKED
    assert asked[0] == "debug"
    assert asked[1].spec.train.steps == 7
    first, *rest = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"j-debug-\d{8}T\d{6}Z\.zip: [\d,]+ bytes; unpack it and open index\.html", first)
    assert rest == [
        "j failed with exit code 13: worker:0: the loss is nan at step 5",
        "to try: lower the learning rate: `train.learning_rate`, or the one in `compile()` or `optimizer()`; "
        "look for such values in the data; with float16 try bfloat16",
    ]
    found = files()
    assert set(found) == {"spec.json", "index.html"}
    assert json.loads(found["spec.json"])["env"] == {"API_KEY": "[hidden: API_KEY]"}


@pytest.mark.parametrize(
    ("remark", "advice"),
    [("9.1 of 12.0 s were seconds to the first step: import 6.0 s", 0), ("3 tasks: more workers than cores", 1)],
)
def test_of_a_job_that_is_healthy_there_is_nothing_to_try(
    remark: str, advice: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake.Fake, "debug", lambda *_: Evidence("j", "nowhere", "done", 0, remarks=[remark]))
    assert cli.main(["debug", "--target", "fake", "j"]) == Exit.OK
    _, headline, *rest = capsys.readouterr().out.splitlines()
    assert headline == "j succeeded"
    assert [line.startswith("to try: ") for line in rest] == [True] * advice


def test_a_name_is_enough_where_the_target_keeps_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["debug", "--target", "fake", "--namespace", "n", "j", "-o", "a b.zip"]) == Exit.OK
    (asked,) = fake.ASKED
    assert asked == ("debug", Job("j"))
    assert capsys.readouterr().out.startswith("a b.zip: ")


def left(message: str) -> None:
    """What a failed run leaves in the model_dir of the spec."""
    Path("runs/j").mkdir(parents=True)
    (layout.make_own("runs/j") / ".lock").touch()
    job_state.fail("runs/j", State(end=End("j", int(Exit.OVERDUE), message)))


@pytest.mark.parametrize("words", [["runs/j"], ["job.yaml"], ["--target", "local", "job.yaml"]])
def test_a_job_of_this_machine_is_found_by_its_folder_and_by_its_spec(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    left("the job has taken longer than 9 s (deadlines.job)")
    assert cli.main(["debug", *words]) == Exit.OK
    printed = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"j failed with exit code 19: \w+:0: the job has taken longer than 9 s .*", printed[1])
    assert {"index.html", "machine.json", "model_dir/state.json", "model_dir/files.txt"} <= set(files())


def test_a_refused_spec_and_one_that_never_started_have_archives_too(capsys: pytest.CaptureFixture[str]) -> None:
    Path("job.yaml").write_text(SPEC.replace("name: j", "name: j, trian: 5"))
    assert cli.main(["debug", "job.yaml"]) == Exit.OK
    assert "job never started: job.yaml: trian: 5: unknown key" in capsys.readouterr().out
    assert "hunter2hunter2" not in "".join(files().values())
    next(Path().glob("*.zip")).unlink()
    Path("job.yaml").write_text(SPEC.replace("name: j", "name: j, workload: none.py"))
    assert cli.main(["debug", "--target", "local", "job.yaml"]) == Exit.OK
    assert "j never started: workload: none.py: no such file" in capsys.readouterr().out
    assert "index.html" in files()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--target", "local", "nowhere"], "nowhere: cannot be read: No such file or directory"),
        (["--target", "local", "."], ".: no job runs there on this machine; none was started"),
        (["--target", "local", "--namespace", "n", "job.yaml"], "--namespace: is not an option of --target local"),
        (["--target", "fake", "j", "-o", "none/x.zip"], "archive: none/x.zip: cannot be written: No such file"),
        (["--target", "fake", "job.yaml", "-o", "none/x.zip"], "archive: none/x.zip: cannot be written: No such file"),
    ],
)
def test_what_cannot_be_is_one_line(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["debug", *words]) == Exit.USER
    error = capsys.readouterr().err
    assert error.startswith(f"trainer: {line}")
    assert error.count("\n") == 1
    assert list(Path().glob("*.zip")) == []
