"""How the tasks of a ring find each other, and refuse others."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from trainer.job.cluster import tasks_of
from trainer.job.errors import Exit, UnreachableError
from trainer.job.load import build
from trainer.protocol.orders import Neighbours
from trainer.training.exchange import ring_connections
from trainer.training.exchange.ring_connections import _accepted, _answered, _dialled, form

TOKEN, ANSWER = b"0123456789abcdef", b"fedcba9876543210"
RULE = "to add up gradients; allow it, or set communication.implementation=ring$"


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def soon() -> float:
    return time.monotonic() + 20


def dialling(address: tuple[str, int], deadline: float) -> Callable[[], socket.socket]:
    return lambda: _dialled(address, TOKEN, deadline, "no peer")


@pytest.mark.parametrize("count", [2, 3])
def test_tasks_of_one_generation_form_a_ring_and_a_caller_of_the_one_before_has_no_part(count: int) -> None:
    spec = build({"name": "j", "strategy": "multi_worker_mirrored", "tasks": {"worker": count}})
    tasks = tasks_of(spec, lambda *_: "127.0.0.1:2222")
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in tasks]
    ports = [each.getsockname()[1] for each in listeners]
    late = socket.create_connection(listeners[0].getsockname())
    late.sendall(ring_connections._words("generation 1", 0)[0])  # waits in the queue of the listener, as after a kill
    with ThreadPoolExecutor(count) as pool:
        rings = [
            pool.submit(form, task, Neighbours(ports[(i + 1) % count], "generation 2"), listeners[i], 20)
            for i, task in enumerate(tasks)
        ]
        sums = [
            pool.submit(lambda ring, i: ring.end(ring.begin(0, np.full(7, i + 1, np.int32))), each.result(20), i)
            for i, each in enumerate(rings)
        ]
        assert [each.result(20).tolist() for each in sums] == [[count * (count + 1) // 2] * 7] * count
    assert late.recv(1) == b""
    for each in (late, *listeners):
        each.close()


def test_only_who_knows_the_token_is_connected(listener: socket.socket) -> None:
    address, deadline = listener.getsockname(), soon()
    silent, stranger = (socket.create_connection(address) for _ in range(2))
    stranger.sendall(b"f" * 16)
    silent.shutdown(socket.SHUT_WR)
    with ThreadPoolExecutor(1) as pool:
        accepted = pool.submit(_accepted, listener, TOKEN, ANSWER, deadline, "")
        dial = dialling(address, deadline)
        own = _answered(dial(), ANSWER, dial, deadline, "")
        found = accepted.result(20)
    own.sendall(b"hello")
    assert found.recv(5) == b"hello"
    assert stranger.recv(1) == silent.recv(1) == b""
    for each in (silent, stranger, own, found):
        each.close()


def test_a_token_may_come_in_pieces(listener: socket.socket) -> None:
    with ThreadPoolExecutor(1) as pool, socket.create_connection(listener.getsockname()) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted = pool.submit(_accepted, listener, TOKEN, ANSWER, soon(), "")
        for i in range(0, 16, 4):
            peer.sendall(TOKEN[i : i + 4])
            time.sleep(0.02)  # so that they are not read at once; whether they are changes nothing
        accepted.result(20).close()
        assert peer.recv(16, socket.MSG_WAITALL) == ANSWER


@pytest.mark.parametrize("first", [b"", TOKEN], ids=["closed", "an echo"])
def test_a_peer_that_was_refused_dials_again(listener: socket.socket, first: bytes) -> None:
    """As where it was stopped before it sent its token, or another program had the port before."""
    address, deadline = listener.getsockname(), soon()

    def peer() -> socket.socket:
        refused, _ = listener.accept()
        refused.recv(16, socket.MSG_WAITALL)
        refused.sendall(first)
        refused.close()
        return _accepted(listener, TOKEN, ANSWER, deadline, "")

    with ThreadPoolExecutor(1) as pool:
        accepted, dial = pool.submit(peer), dialling(address, deadline)
        own = _answered(dial(), ANSWER, dial, deadline, "")
        with own, accepted.result(20) as other:
            other.sendall(b"hello")
            assert own.recv(5) == b"hello"


def test_a_peer_that_does_not_connect_is_named_with_its_port(listener: socket.socket) -> None:
    address = listener.getsockname()
    late = time.monotonic() - 1
    text = f"worker:0 did not connect to port {address[1]} of worker:1"
    with pytest.raises(UnreachableError, match=rf"^{text} \(timed out\), {RULE}") as raised:
        _accepted(listener, TOKEN, ANSWER, late, text)
    assert raised.value.code == Exit.MISMATCH
    listener.close()
    with pytest.raises(UnreachableError, match=rf"^worker:0 cannot connect \(Connection refused\), {RULE}"):
        _dialled(address, TOKEN, late, "worker:0 cannot connect")


def test_strangers_do_not_extend_the_deadline(listener: socket.socket) -> None:
    deadline, over = time.monotonic() + 1, threading.Event()
    strangers: list[socket.socket] = []

    def flood() -> None:
        while not over.is_set():
            strangers.append(socket.create_connection(listener.getsockname()))
            strangers.append(socket.create_connection(listener.getsockname()))
            over.wait(0.05)

    flooding = threading.Thread(target=flood)
    flooding.start()
    try:
        with pytest.raises(UnreachableError, match="no peer"):
            _accepted(listener, TOKEN, ANSWER, deadline, "no peer")
    finally:
        over.set()
        flooding.join()
        for each in strangers:
            each.close()


def test_a_peer_that_never_answers_is_unreachable(listener: socket.socket) -> None:
    deadline = time.monotonic() + 0.3
    dial = dialling(listener.getsockname(), deadline)
    with pytest.raises(UnreachableError, match=rf"^no answer \(timed out\), {RULE}"):
        _answered(dial(), ANSWER, dial, deadline, "no answer")


def test_connections_are_kept_alive(listener: socket.socket) -> None:
    if not hasattr(socket, "TCP_KEEPIDLE"):
        pytest.skip("this system names the settings of keepalive otherwise")
    with ring_connections._ready(socket.create_connection(listener.getsockname())) as made:
        assert made.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


def test_strangers_who_say_nothing_or_half_a_token_keep_nobody_waiting(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens of all connections are awaited together: the peer has its turn, though none of theirs ends."""
    monkeypatch.setattr(ring_connections, "_TOKEN_SECONDS", 1000.0)
    address, deadline = listener.getsockname(), soon()
    strangers = [socket.create_connection(address) for _ in range(60)]
    for each in strangers[::2]:
        each.sendall(TOKEN[:8])
    with ThreadPoolExecutor(1) as pool:
        accepted, dial = pool.submit(_accepted, listener, TOKEN, ANSWER, deadline, ""), dialling(address, deadline)
        with _answered(dial(), ANSWER, dial, deadline, "") as own, accepted.result(20) as found:
            own.sendall(b"hello")
            assert found.recv(5) == b"hello"
    for each in strangers:
        each.close()


def test_a_token_that_never_comes_ends_its_connection(listener: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_connections, "_TOKEN_SECONDS", 0.1)
    with ThreadPoolExecutor(1) as pool, socket.create_connection(listener.getsockname()) as silent:
        accepted = pool.submit(_accepted, listener, TOKEN, ANSWER, soon(), "")
        silent.settimeout(20)
        assert silent.recv(1) == b""
        with socket.create_connection(listener.getsockname()) as peer:
            peer.sendall(TOKEN)
            accepted.result(20).close()
