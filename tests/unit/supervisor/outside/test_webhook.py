"""`notify`: what is reported at the end of a job, and what comes of receivers that do not take it."""

import asyncio
import json
import math
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.tools.harness import alive
from tests.tools.receiver import receiver
from trainer import reporting
from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit, UserError
from trainer.job.load import build
from trainer.job.spec import JobSpec
from trainer.supervisor.outside import webhook
from trainer.supervisor.outside.webhook import Ending

DONE = Ending(Exit.OK, "", 40, {"steps": 40, "test_accuracy": 0.97}, 75.4, 2, 1)
FAILED = Ending(Exit.DIVERGED, "worker:0: the loss is NaN at step 7", 7, {"loss": float("nan")}, 5.0, 1)
STOPPED = Ending(Exit.STOPPED, "stopped by a signal; the checkpoint of step 40 is kept", 40)


def spec_of(folder: Path | str = "runs/j", secrets: dict[str, Any] | None = None, **given: Any) -> JobSpec:
    more = {"secrets": secrets} if secrets else {}
    return build({"name": "j", "strategy": "one_device", "model_dir": str(folder), "notify": given, **more})


def tell(spec: JobSpec, end: Ending = DONE, seconds: float = 10) -> None:
    asyncio.run(asyncio.wait_for(webhook.tell(spec, tasks_of(spec)[0], end, seconds), 30))


def test_a_webhook_gets_the_whole_report(capsys: pytest.CaptureFixture[str]) -> None:
    with receiver() as server:
        tell(spec_of(webhook=f"{server.address}/hook"))
    (request,) = server.requests
    assert (request.path, request.headers["Content-Type"]) == ("/hook", "application/json")
    found = request.document
    assert abs(found.pop("time") - time.time()) < 60
    assert found == {
        "version": 1, "text": "j succeeded after 75 s: steps=40 test_accuracy=0.97", "job": "j", "outcome": "done",
        "code": 0, "message": "", "step": 40, "figures": {"steps": 40, "test_accuracy": 0.97}, "seconds": 75.4,
        "generations": 2, "restarts": 1, "model_dir": "runs/j",
    }  # fmt: skip
    assert capsys.readouterr().out == ""


def test_a_failure_has_its_code_and_message_and_no_number_that_json_lacks() -> None:
    found = webhook.report(spec_of(webhook="http://x"), FAILED)
    assert found["text"] == "j failed after 5 s with exit code 13: worker:0: the loss is NaN at step 7"
    assert (found["outcome"], found["code"], found["figures"]) == ("failed", 13, {"loss": None})
    json.dumps(found, allow_nan=False)


def test_a_program_that_reports_no_number_has_none_either() -> None:
    """It comes as a text: see reporting.plain."""
    given = {"loss": math.nan, "worst": -math.inf, "best": math.inf, "phase": "warm", "accuracy": 0.5}
    figures = {name: reporting.plain(name, value) for name, value in given.items()}
    found = webhook.report(spec_of(webhook="http://x"), Ending(Exit.OK, figures=figures))
    assert found["figures"] == {"loss": None, "worst": None, "best": None, "phase": "warm", "accuracy": 0.5}
    assert str(found["text"]).endswith("loss=nan worst=-inf best=inf phase=warm accuracy=0.5")


def test_the_text_for_a_chat_is_short_and_plain() -> None:
    end = Ending(Exit.USER, "<!channel> model() returned <class 'int'> & more: é " + "x" * 10_000)
    with receiver() as server:
        tell(spec_of(webhook=server.address), end)
    found = server.requests[0].document
    text = found["text"]
    assert text.startswith("j failed after 0 s with exit code 2: &lt;!channel&gt; model() returned &lt;class 'int'&gt;")
    assert "&amp; more: é x" in text
    assert len(text) < 3100
    assert found["message"] == end.message


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.4, "0 s"), (119, "119 s"), (121, "2 min"), (7000, "117 min"), (9000, "2.5 h")]
)
def test_durations_are_readable(seconds: float, shown: str) -> None:
    assert f"after {shown}" in str(
        webhook.report(spec_of(webhook="http://x"), Ending(Exit.OK, seconds=seconds))["text"]
    )


@pytest.mark.parametrize(
    ("when", "reported"),
    [(None, ["done", "failed"]), (["stopped"], ["stopped"]), (["failed", "stopped"], ["failed", "stopped"])],
)
def test_only_the_chosen_ends_are_reported(when: list[str] | None, reported: list[str]) -> None:
    with receiver() as server:
        for end in (DONE, FAILED, STOPPED):
            given: dict[str, Any] = {"when": when} if when else {}
            tell(spec_of(webhook=server.address, **given), end)
    assert [request.document["outcome"] for request in server.requests] == reported


def test_a_webhook_that_fails_for_a_moment_is_called_again(capsys: pytest.CaptureFixture[str]) -> None:
    with receiver(503, 429) as server:
        tell(spec_of(webhook=server.address))
    assert len(server.requests) == 3
    assert len({request.body for request in server.requests}) == 1
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("status", [301, 401, 404])
def test_a_webhook_that_refuses_is_a_warning_without_its_path(status: int, capsys: pytest.CaptureFixture[str]) -> None:
    with receiver(*[status] * 9) as server:
        tell(spec_of(webhook=f"{server.address}/services/SECRET"))
    assert len(server.requests) == 1
    why = f"127.0.0.1:{server.port} answers {status}; the end of the job is not reported there"
    assert capsys.readouterr().out == f"warning: notify.webhook: {why}\n"


def test_a_webhook_that_never_answers_costs_no_more_than_the_deadline(capsys: pytest.CaptureFixture[str]) -> None:
    with receiver(0) as server:
        tell(spec_of(webhook=server.address), seconds=0.5)
        assert len(server.requests) == 1
    assert f"no answer from 127.0.0.1:{server.port}; the end" in capsys.readouterr().out


def test_a_webhook_that_is_down_is_tried_until_the_deadline(free: int, capsys: pytest.CaptureFixture[str]) -> None:
    tell(spec_of(webhook=f"http://127.0.0.1:{free}"), seconds=0.6)
    assert capsys.readouterr().out.count("warning") == 1


def test_the_address_may_be_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiver() as server:
        monkeypatch.setenv("CHAT", f"{server.address}/secret")
        tell(spec_of(webhook_from="CHAT", secrets={"CHAT": {}}))
    assert server.requests[0].path == "/secret"


SCRIPT = """
import json, os, sys
found = {"in": json.load(sys.stdin), "words": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd()}
open(os.environ["TRAINER_MODEL_DIR"] + "/told.json", "w").write(json.dumps(found))
"""


def command(folder: Path, text: str, *words: str) -> list[str]:
    (folder / "tell.py").write_text(text)
    return [sys.executable, str(folder / "tell.py"), *words]


def test_a_command_gets_the_report_on_its_standard_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANNEL", "#a b")
    tell(spec_of(tmp_path, command=command(tmp_path, SCRIPT, "--to=$(CHANNEL)", "$$x; rm -r /")))
    found = json.loads((tmp_path / "told.json").read_text())
    assert found["in"]["figures"] == DONE.figures
    assert found["words"] == ["--to=#a b", "$x; rm -r /"]
    assert (found["env"]["CHANNEL"], found["cwd"]) == ("#a b", str(Path.cwd()))
    assert "TRAINER_JOB" not in found["env"]


def test_a_command_gets_the_text_as_it_is(tmp_path: Path) -> None:
    message = "ValueError: <no> layers & no data, in <module>"
    tell(spec_of(tmp_path, command=command(tmp_path, SCRIPT)), Ending(Exit.USER, message))
    assert json.loads((tmp_path / "told.json").read_text())["in"]["text"].endswith(message)


def test_a_command_that_does_not_end_is_killed_with_its_children(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = SCRIPT + "import subprocess, time\nchild = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
    text += "open(os.environ['TRAINER_MODEL_DIR'] + '/pid', 'w').write(str(child.pid))\ntime.sleep(600)\n"
    tell(spec_of(tmp_path, command=command(tmp_path, text)), seconds=3)
    assert not alive(int((tmp_path / "pid").read_text()))
    assert (
        capsys.readouterr().out == f"warning: notify.command: {sys.executable!r}: killed after 3 s (deadlines.notify)\n"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [("raise SystemExit(3)", "exited with code 3"), ("import os; os.kill(os.getpid(), 9)", "killed by SIGKILL")],
)
def test_a_command_that_fails_is_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    tell(spec_of(tmp_path, command=command(tmp_path, text)))
    assert capsys.readouterr().out == f"warning: notify.command: {sys.executable!r}: {why}\n"


def test_a_command_that_is_gone_is_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    tell(spec_of(command=["/no/such"]))
    assert capsys.readouterr().out == "warning: notify.command: its first word: '/no/such': no such file\n"


def test_a_webhook_that_fails_does_not_keep_the_command_from_running(tmp_path: Path, free: int) -> None:
    tell(spec_of(tmp_path, webhook=f"http://127.0.0.1:{free}", command=command(tmp_path, SCRIPT)), seconds=5)
    assert (tmp_path / "told.json").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"command": ["no-such-command"]}, "notify.command: 'no-such-command': no such command in PATH"),
        ({"webhook_from": "CHAT"}, "secrets.CHAT: its value must begin with http:// or https://"),
    ],
)
def test_what_cannot_work_at_the_end_is_refused_at_the_start(
    given: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHAT", "very-secret")
    spec = spec_of(secrets={"CHAT": {}}, **given)
    with pytest.raises(UserError) as found:
        webhook.check(spec, tasks_of(spec)[0])
    assert str(found.value).startswith(message)
    assert "very-secret" not in str(found.value)


def test_after_sigterm_a_report_takes_what_is_left_of_the_stop() -> None:
    spec, now = spec_of(webhook="http://x"), time.monotonic()
    assert webhook.seconds_left(spec, None) == spec.deadlines.notify
    assert 4 < webhook.seconds_left(spec, now - 3) <= spec.deadlines.stop - 3
    assert webhook.seconds_left(spec, now - 100) == webhook.LEAST_SECONDS
