"""Who has the other end of a connection."""

from __future__ import annotations

import os
import socket

import pytest

from trainer import host, sockets


@pytest.mark.skipif(not host.LINUX, reason="only Linux tells it")
def test_a_peer_that_has_closed_its_socket_is_nobody_s() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        with socket.create_connection(listener.getsockname()) as made:
            accepted, peer = listener.accept()
            assert sockets.user_of(peer, accepted.getsockname()) == os.getuid()
            ends = (made.getsockname(), made.getpeername())
            assert sockets._owner(*ends) == sockets._owner_in_table(socket.AF_INET, *ends)
        with accepted:
            assert sockets.user_of(peer, accepted.getsockname()) is None
