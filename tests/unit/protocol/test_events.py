"""Events and orders as lines, and back."""

import json
from typing import Any

import pytest

from trainer.protocol import events
from trainer.protocol.events import Done, Event, Failed, Line, PeerLost, Saved, Scored, Start, Step, read_event
from trainer.protocol.orders import Final, Go, Neighbours, Order, Silent, Stop, read_order, write_order

TOLD: list[Event] = [
    *(kind() for kind in (events.Alive, events.Warm, events.Traced, events.Trained, events.Finishing, Start, Step)),
    Start(0, 500, "task=worker:0"),
    Step(5, {"worker:0": {"step": 3}}, {"loss": 0.5, "top 5": None}),
    Step(5, None, {}, 4, 0.5, 1.5, 0.25, 0.0, 0.75),
    Saved(5, 0.1),
    Scored(7, {"accuracy": 1}),
    PeerLost("x"),
    PeerLost("x", 2, "y"),
    Failed(2, "x"),
    Line("\ud800 of a file that is no UTF-8"),
    Done(5, {"accuracy": 0.9}, 100.0, 7),
    Done(result={"sum": 3}),
]


@pytest.mark.parametrize("event", TOLD, ids=events.name_of)
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    assert read_event(events.write_event(event).encode()) == event


def test_figures_of_any_name_hide_no_field() -> None:
    step = Step(5, figures={"loss": 0.5, "step": 9, "event": "done", "figures": {}, "workers": 3})
    line = events.write_event(step)
    assert json.loads(line) == {"event": "step", "step": 5, "figures": step.figures}
    assert read_event(line.encode()) == step


def test_what_a_newer_version_adds_to_an_event_is_left_out() -> None:
    assert read_event(b'{"event": "step", "step": 5, "colour": "blue"}') == Step(5)


STEPS: list[Any] = ["5", True, -1, 2**63, 0.5, None, []]
NONE: list[Any] = [
    *([], 3, {}, {"event": 3}, {"event": "exit"}, {"event": "surprise"}, {"event": "line"}, {"event": "error"}),
    *({"event": "step", "step": step} for step in STEPS),
    {"event": "step", "workers": []},
    {"event": "step", "workers": {"worker:0": 3}},
    *({"event": "step", "figures": figures} for figures in STEPS[-2:]),
    *({"event": "checkpoint", "step": 5, "stalled": stalled} for stalled in [float("nan"), -1, "0"]),
    {"event": "error", "code": "2", "message": "x"},
    {"event": "done", "step": 5, "test": [0.9]},
]


@pytest.mark.parametrize("document", NONE)
def test_what_is_no_event_is_none(document: Any) -> None:
    assert read_event(json.dumps(document).encode()) is None


@pytest.mark.parametrize("line", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_line_that_is_no_json_is_no_event_and_no_order(line: bytes) -> None:
    assert read_event(line) is None
    assert read_order(line.decode(errors="replace")) is None


@pytest.mark.parametrize(
    "order",
    [
        Go(3, 500),
        Go(3, 0, Neighbours(4222, "c0ffee")),
        Stop(),
        Final(9),
        Final(9, score=False),
        Silent(frozenset()),
        Silent(frozenset({"ps:0"})),
    ],
)
def test_an_order_comes_back_as_it_was(order: Order) -> None:
    assert read_order(write_order(order).decode()) == order


@pytest.mark.parametrize(
    "document", [{}, [], {"go": 3}, {"go": {"generation": 1}}, {"final": "9"}, {"silent": [3]}, {"silent": "ps:0"}]
)
def test_what_is_no_order_is_none(document: Any) -> None:
    assert read_order(json.dumps(document)) is None
