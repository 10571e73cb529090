"""Connections that are closed as if their peer had reset them."""

import socket

import pytest

from trainer.training import connections


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
