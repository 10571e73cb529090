"""A child's report of the error that ended it."""

import json
import re
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from trainer.job.errors import Exit, TrainerError, UnreachableError
from trainer.job.load import build
from trainer.protocol import events
from trainer.protocol.events import Event
from trainer.training import failure
from trainer.workloads.load import load_workload
from trainer.workloads.locate import python_error


def told(event: Event) -> dict[str, object]:
    """What the child's supervisor hears of an event, but for its name."""
    return {name: value for name, value in json.loads(events.write_event(event)).items() if name != "event"}


QUOTED = """Graph execution error:

Detected at node PyFunc defined at (most recent call last):
<stack traces unavailable>
OSError: cannot read part-00007.tfrecord
Traceback (most recent call last):

  File "/lib/python3.11/site-packages/tensorflow/python/ops/script_ops.py", line 269, in __call__
    ret = func(*args)
          ^^^^^^^^^^^

  File "{file}", line 9, in examples
    raise OSError("cannot read part-00007.tfrecord")

OSError: cannot read part-00007.tfrecord


\t [[{{{{node PyFunc}}}}]]
\t [[while/body/_1/while/IteratorGetNext]] [Op:__inference_call_339]"""


def test_an_exception_inside_a_graph_is_reported_with_the_line_of_the_workload() -> None:
    text = QUOTED.format(file=Path("gen.py").absolute())
    assert python_error(text, "gen.py") == "workload: gen.py:9: OSError: cannot read part-00007.tfrecord"


def test_the_copy_of_an_exception_that_is_whole_is_the_one_that_is_reported() -> None:
    whole = QUOTED.format(file=Path("gen.py").absolute())
    escaped = whole.replace('"', '\\"').replace("\n", "\\n")
    cut = escaped[: escaped.index("in __call__")]
    for text in (f"{whole} {cut}", f"{cut} {whole}", escaped):
        assert python_error(text, "gen.py") == "workload: gen.py:9: OSError: cannot read part-00007.tfrecord"


def test_an_exception_in_a_module_that_the_workload_uses_is_reported_with_its_own_line() -> None:
    text = QUOTED.format(file="/lib/reader.py")
    expected = "workload: gen.py: /lib/reader.py:9: OSError: cannot read part-00007.tfrecord"
    assert python_error(text, "gen.py") == expected


@pytest.mark.parametrize(
    "text",
    ["", "Connection reset by peer", "Traceback (most recent call last):\n", QUOTED.partition("Traceback")[0]],
)
def test_an_error_that_quotes_no_traceback_is_none_of_python(text: str) -> None:
    assert python_error(text, "gen.py") is None


class Events:
    def __init__(self) -> None:
        self.events: list[events.Event] = []

    def send(self, event: events.Event) -> None:
        self.events.append(event)


TWO = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'
ONE = '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'


@pytest.mark.parametrize(
    ("error", "tf_config", "event", "fields"),
    [
        ("UnavailableError", TWO, "peer_lost", {"text"}),
        ("UnknownError", TWO, "peer_lost", {"text", "code", "message"}),
        ("InternalError", TWO, "peer_lost", {"text", "code", "message"}),
        ("InvalidArgumentError", TWO, "error", {"code", "message"}),
        ("UnavailableError", ONE, "error", {"code", "message"}),
        ("InternalError", "", "error", {"code", "message"}),
    ],
)
def test_only_a_task_with_peers_may_blame_one_and_doubtful_errors_say_what_they_are_otherwise(
    error: str, tf_config: str, event: str, fields: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    monkeypatch.setenv("TF_CONFIG", tf_config)
    channel: Any = Events()
    failure.report(
        getattr(tf.errors, error)(None, None, "it broke"), build({"name": "j", "strategy": "mirrored"}), channel
    )
    (said,) = channel.events
    assert (events.name_of(said), set(told(said))) == (event, fields)


def test_a_task_that_diverged_does_not_judge_checkpoints_to_which_it_may_have_no_access() -> None:
    channel: Any = Events()
    spec = build({"name": "j", "strategy": "mirrored"})
    assert failure.report(TrainerError("the loss is nan at step 701", Exit.DIVERGED), spec, channel) is Exit.DIVERGED
    assert [event.message for event in channel.events] == ["the loss is nan at step 701"]


LEFT = (
    "Resource input tensor contains an invalid device. This might happen when the client has connected to a different "
    "cluster, or some remote workers have been restarted."
)
HEARTBEAT = "Collective ops is aborted by: Deadline Exceeded RPC: /tensorflow.CoordinationService/Heartbeat"


@pytest.mark.parametrize(
    ("error", "text", "tf_config", "event", "fields"),
    [
        ("DeadlineExceededError", HEARTBEAT, TWO, "peer_lost", {"text"}),
        ("DeadlineExceededError", "it broke", TWO, "peer_lost", {"text", "code", "message"}),
        ("UnavailableError", "no such bucket", TWO, "peer_lost", {"text", "code", "message"}),
        ("InvalidArgumentError", "it broke", TWO, "error", {"code", "message"}),
        ("InvalidArgumentError", LEFT, TWO, "peer_lost", {"text", "code", "message"}),
        ("UnavailableError", "no such bucket", ONE, "error", {"code", "message"}),
    ],
)
def test_a_line_of_the_workload_may_meet_a_lost_peer_too(
    error: str, text: str, tf_config: str, event: str, fields: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import tensorflow as tf

    monkeypatch.setenv("TF_CONFIG", tf_config)
    path = tmp_path / "mine.py"
    path.write_text("def model(error):\n    raise error\n")
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)  # noqa: S102
    spec, channel = build({"name": "j", "strategy": "multi_worker_mirrored", "workload": str(path)}), Events()
    with pytest.raises(tf.errors.OpError) as raised:
        names["model"](getattr(tf.errors, error)(None, None, text))
    failure.report(raised.value, spec, channel)  # type: ignore[arg-type]
    (said,) = channel.events
    values = told(said)
    assert events.name_of(said) == event
    assert values.keys() == fields
    if "message" in fields:
        assert f"{path}:2: {error}: {text}" in str(values["message"])


def test_an_error_of_a_server_which_has_no_tensorflow_in_python_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", types.ModuleType("tensorflow"))  # as a server has
    monkeypatch.delitem(sys.modules, "trainer.training.runtime.user_code", raising=False)
    spec, channel = build({"name": "j", "strategy": "parameter_server", "tasks": {"worker": 1, "ps": 1}}), Events()
    assert failure.report(RuntimeError("no such symbol"), spec, channel) is Exit.BUG  # type: ignore[arg-type]
    assert channel.events == [events.Failed(1, "unexpected RuntimeError: no such symbol")]


def test_an_error_that_no_one_expects_has_its_place() -> None:
    def fails() -> None:
        raise KeyError("x")

    spec, channel = build({"name": "j", "strategy": "multi_worker_mirrored"}), Events()
    with pytest.raises(KeyError) as raised:
        fails()
    assert failure.report(raised.value, spec, channel) is Exit.BUG  # type: ignore[arg-type]
    (said,) = channel.events
    assert isinstance(said, events.Failed)
    assert re.fullmatch(r"unexpected KeyError: 'x' \(test_failure\.py:\d+ in fails\)", str(said.message))


def of_a_ring(kind: str, line: str, spec: Any) -> events.Event:
    """The report of what a ring raised in a graph, in which TensorFlow quotes it."""
    import tensorflow as tf

    trace = 'Traceback (most recent call last):\n\n  File "/opt/ring.py", line 109, in end\n    raise self._failure'
    text = f"Graph execution error:\n{line}\n{trace}\n\n{line}\n\t [[{{{{node RingEnd}}}}]]"
    channel = Events()
    failure.report(getattr(tf.errors, kind)(None, None, text), spec, channel)  # type: ignore[arg-type]
    (event,) = channel.events
    return event


def test_a_closed_connection_of_the_ring_is_a_lost_peer_and_no_error_of_the_workload(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from trainer.training.exchange.ring import LOST

    monkeypatch.setenv("TF_CONFIG", TWO)
    spec = build({"name": "j", "strategy": "multi_worker_mirrored"})
    event = of_a_ring("UnknownError", f"ConnectionError: {LOST}: Connection reset by peer", spec)
    assert event == events.PeerLost(f"UnavailableError: {LOST}: Connection reset by peer")


def test_tasks_with_different_gradients_are_an_error_of_the_workload(monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.training.exchange.ring import DIFFERENT

    monkeypatch.setenv("TF_CONFIG", TWO)
    spec = build({"name": "j", "strategy": "multi_worker_mirrored"})
    event = of_a_ring("InvalidArgumentError", f"ValueError: {DIFFERENT}: 40 bytes came for 80", spec)
    fix = "model() must create the same layers in the same order in each task"
    assert event == events.Failed(Exit.USER, f"workload: {DIFFERENT}: 40 bytes came for 80; {fix}")


def test_a_peer_that_cannot_be_reached_may_be_lost_and_is_else_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", TWO)
    spec, channel = build({"name": "j", "strategy": "multi_worker_mirrored"}), Events()
    failure.report(UnreachableError("worker:0 cannot connect to worker:1"), spec, channel)  # type: ignore[arg-type]
    (event,) = channel.events
    assert isinstance(event, events.PeerLost)
    assert (event.code, event.message) == (Exit.MISMATCH, "worker:0 cannot connect to worker:1")


def test_a_file_that_reads_a_command_line_is_told_where_its_settings_are(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "import argparse\nargparse.ArgumentParser().parse_args(['--lr'])\nDATASET = 'digits'\ndef model(): pass\n"
    )
    spec, events = build({"name": "j", "strategy": "one_device", "workload": str(path)}), Events()
    with pytest.raises(SystemExit) as caught:
        load_workload(spec)
    assert failure.report(caught.value, spec, events) == Exit.USER  # type: ignore[arg-type]
    (failed,) = map(told, events.events)
    assert str(failed["message"]).startswith(
        f"workload: {path}:2: SystemExit: 2; the file ends its process: a workload is imported and has no command "
        "line; read SETTINGS, which `settings` in the spec replaces"
    )
