"""Ports of a local cluster: blocks that never overlap, and the error for a port in use."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from trainer.job.errors import UserError
from trainer.job.names import control_port
from trainer.targets.local import ports

TASKS = ["chief:0", "worker:0", "ps:0"]


def listen(port: int, host: str = "127.0.0.1") -> socket.socket:
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    listener.listen()
    return listener


@pytest.fixture
def block() -> Iterator[int]:
    """The first port of a block whose upper half no other process uses during the test."""
    with ports.reserve(TASKS) as taken:
        yield taken["chief:0"] + 50


def test_blocks_and_their_control_ports_never_overlap() -> None:
    seen: set[int] = set()
    for first in ports.blocks(0):
        tf_ports = range(first, first + ports.BLOCK)
        both = {*tf_ports, *(control_port(port) for port in tf_ports)}
        assert not both & seen
        seen |= both
    assert min(seen) == 10_000
    assert max(seen) < 30_000, "below the ports that Linux gives to outgoing connections"


@pytest.mark.parametrize("start", [0, 1, 99, 12_345])
def test_every_start_goes_round_all_blocks(start: int) -> None:
    assert sorted(ports.blocks(start)) == sorted(ports.blocks(0))
    assert next(ports.blocks(start)) == list(ports.blocks(0))[start % ports.BLOCKS]


def test_two_runs_never_have_the_same_block() -> None:
    with ports.reserve(TASKS) as one, ports.reserve(TASKS) as other:
        assert list(one) == TASKS
        assert one["worker:0"] == one["chief:0"] + 1
        assert one["chief:0"] // ports.BLOCK != other["chief:0"] // ports.BLOCK


def test_a_block_is_free_again_afterwards() -> None:
    with ports.reserve(TASKS) as taken:
        pass
    with ports.reserve(TASKS) as again:
        assert again == taken


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("offset", [2, 1002], ids=["TensorFlow port", "control port"])
def test_a_block_with_a_busy_port_is_passed_over(monkeypatch: pytest.MonkeyPatch, host: str, offset: int) -> None:
    with ports.reserve(TASKS) as taken:
        first = taken["chief:0"]
    monkeypatch.setattr(os, "getpid", lambda: list(ports.blocks(0)).index(first))
    with listen(first + offset, host), ports.reserve(TASKS) as taken:
        assert taken["chief:0"] != first
    with listen(first + offset + 1, host), ports.reserve(TASKS) as taken:
        assert taken["chief:0"] == first, "no task needs that port"


def test_no_block_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "problem", lambda _: "is in use")
    with pytest.raises(UserError, match="no 3 free ports"), ports.reserve(TASKS):
        pass


def test_given_ports(block: int) -> None:
    with ports.reserve(TASKS, block) as taken:
        assert taken == {"chief:0": block, "worker:0": block + 1, "ps:0": block + 2}


def test_all_busy_ports_are_named_with_their_tasks(block: int) -> None:
    with listen(block + 1), listen(block + 1002, "0.0.0.0"), pytest.raises(UserError) as caught:  # noqa: SIM117
        with ports.reserve(TASKS, block):
            pass
    assert caught.value.problems == (
        f"port {block + 1} (worker:0) is in use; choose another --port or leave it out",
        f"port {block + 1002} (control port of ps:0) is in use; choose another --port or leave it out",
    )


@pytest.mark.parametrize("base", [-1, 0, 64_534, 70_000])
def test_ports_out_of_range(base: int) -> None:
    with pytest.raises(UserError, match=rf"--port {base}: must be 1\.\.64533: 3 tasks"), ports.reserve(TASKS, base):
        pass


def test_more_tasks_than_a_block_has_ports() -> None:
    with pytest.raises(UserError, match="100 tasks: one machine runs at most 99; lower"):
        ports.reserve([f"worker:{i}" for i in range(100)]).__enter__()
