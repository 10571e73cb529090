"""Connections that are closed as if their peer had reset them, and peers that are waited for."""

import socket
import threading
import time

import pytest

from trainer.training.runtime import connections


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_connections_to_a_peer_end_and_others_stay(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as other:
        port = silent.getsockname()[1]
        with (
            socket.create_connection(("127.0.0.1", port)) as to_silent,
            socket.create_connection(other.getsockname()) as to_other,
        ):
            to_silent.settimeout(5)
            to_other.setblocking(False)
            assert connections.cut(connections.peers(f"{host}:{port}")) == 1
            assert to_silent.recv(1) == b"", "a read that waits for the peer ends"
            with pytest.raises(BlockingIOError):
                to_other.recv(1)


def test_a_connection_over_ipv6_to_an_ipv4_address_is_found() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket(socket.AF_INET6) as dual:
        port = silent.getsockname()[1]
        dual.connect(("::ffff:127.0.0.1", port))
        assert connections.cut({("127.0.0.1", port)}) == 1


def test_a_host_without_an_address_has_no_peers() -> None:
    assert connections.peers("nowhere.invalid:2222") == set()


def test_peers_are_waited_for_until_all_of_them_listen() -> None:
    with socket.socket() as late, socket.create_server(("127.0.0.1", 0)) as ready:
        late.bind(("127.0.0.1", 0))
        addresses = ["{}:{}".format(*each.getsockname()) for each in (ready, late)]
        waiting = threading.Thread(target=connections.until_they_listen, args=(addresses,))
        waiting.start()
        ready.accept()[0].close()  # the first is found, so that the wait is for the second
        assert waiting.is_alive()
        late.listen()
        waiting.join(10)
        assert not waiting.is_alive()


def test_peers_that_never_listen_are_waited_for_until_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LISTEN_SECONDS", 0.3)
    begun = time.monotonic()
    connections.until_they_listen(["127.0.0.1:1", "nowhere.invalid:2222"])
    assert time.monotonic() - begun >= 0.3


def test_a_connection_to_itself_is_no_peer_that_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.connect(own.getsockname())
        monkeypatch.setattr(socket, "create_connection", lambda *_: own)
        assert not connections._listens("{}:{}".format(*own.getsockname()))
