"""Both ends of the pipes: a real process with a Channel, and orders and events as its supervisor has them."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from trainer.job import environment
from trainer.protocol.orders import Final, Go, Order, write_order

PROLOGUE = """
from trainer.protocol.events import *
from trainer.training.runtime.channel import Channel
channel = Channel()
def say(value): channel.send(Line(repr(value)))
"""


class Peer:
    """A process that runs `program` with a Channel named `channel`."""

    def __init__(self, program: str) -> None:
        ours, theirs = os.pipe()
        self.events = os.fdopen(ours)
        self.process = subprocess.Popen(
            [sys.executable, "-c", f"{PROLOGUE}\n{program}"],
            stdin=subprocess.PIPE, pass_fds=[theirs], env={**os.environ, environment.EVENTS: str(theirs)}, text=True,
        )  # fmt: skip
        os.close(theirs)

    def order(self, **order: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def event(self) -> dict[str, Any]:
        """The next that is no sign of life; empty when it is gone."""
        for line in self.events:
            event: dict[str, Any] = json.loads(line)
            if event["event"] != "alive":
                return event
        return {}

    def signs_of_life(self) -> Iterator[dict[str, Any]]:
        yield from map(json.loads, self.events)


@contextlib.contextmanager
def peer(program: str) -> Iterator[Peer]:
    running = Peer(program)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()
        running.events.close()


def test_orders_are_queued_in_order_and_events_come_up() -> None:
    with peer("while True: say(channel.go.get()); say(channel.final.get())") as running:
        orders: list[Order] = [Go(1, 5), Final(7), Go(2, 0), Final(9, score=False)]
        for order in orders:
            running.order(**json.loads(write_order(order)))
        assert [running.event() for _ in orders] == [{"event": "line", "text": repr(order)} for order in orders]


def test_an_order_to_stop_is_no_order_in_the_queue() -> None:
    with peer("channel.stopping.wait(); say(channel.go.qsize() + channel.final.qsize())") as running:
        running.order(stop=True)
        assert running.event() == {"event": "line", "text": "0"}


def test_it_sends_signs_of_life_while_it_has_nothing_to_report() -> None:
    with peer("channel.stopping.wait()") as running:
        signs = running.signs_of_life()
        assert [next(signs) for _ in range(2)] == [{"event": "alive"}] * 2


@pytest.mark.parametrize("program", ["channel.go.get()", "channel.stopping.wait()", "while True: pass"])
def test_it_ends_when_its_supervisor_is_gone(program: str) -> None:
    with peer(program) as running:
        assert running.process.stdin is not None
        running.process.stdin.close()
        assert running.process.wait(20) == 1


def test_events_without_a_reader_are_harmless() -> None:
    with peer("channel.final.get()\nfor _ in range(9): say(1)\nimport os; os._exit(0)") as running:
        running.events.close()
        running.order(final=1)
        assert running.process.wait(20) == 0


def test_lines_of_several_threads_stay_whole() -> None:
    program = """
import threading
def talk(): [channel.send(Line("y" * 500)) for _ in range(300)]
threads = [threading.Thread(target=talk) for _ in range(4)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
channel.send(Warm())
"""
    with peer(program) as running:
        events = [running.event() for _ in range(1201)]
        assert events == [{"event": "line", "text": "y" * 500}] * 1200 + [{"event": "warm"}]


def test_an_event_that_is_too_long_is_refused_by_name_and_the_next_one_arrives() -> None:
    program = """
from trainer.job.errors import UserError
try:
    channel.send(Done(result={"x": "x" * 70_000_000}))
except UserError as error:
    channel.send(Failed(2, str(error)))
"""
    with peer(program) as running:
        message = "workload: its result is 67 MiB of JSON, at most 64 MiB; write it to a file instead"
        assert running.event() == {"event": "error", "code": 2, "message": message}


def test_the_pipe_is_not_passed_on_to_processes_of_the_users_own() -> None:
    with peer(f"import os; say({environment.EVENTS!r} in os.environ)") as running:
        assert running.event() == {"event": "line", "text": "False"}


def test_the_tasks_that_are_silent_are_those_of_the_last_order() -> None:
    program = "channel.final.get(); say(sorted(channel.silent))\n" * 2
    with peer(program) as running:
        running.order(silent=["worker:1", "worker:3"])
        running.order(final=1)
        assert running.event()["text"] == "['worker:1', 'worker:3']"
        running.order(silent=[])
        running.order(final=2)
        assert running.event()["text"] == "[]"
