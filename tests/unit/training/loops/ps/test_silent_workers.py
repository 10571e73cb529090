"""How the coordinator handles silent workers, without a cluster."""

import socket

import pytest

from trainer.training.loops.ps.silent_workers import SilentWorkers


def test_only_connections_to_silent_workers_are_cut_also_while_a_ps_is_silent() -> None:
    """Of a ps, too, nothing may be heard, while a stop waits for the checkpoint."""
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = [each.getsockname()[1] for each in (first, second)]
        silent = SilentWorkers([f"127.0.0.1:{port}" for port in ports])
        to_first, to_second = (socket.create_connection(("127.0.0.1", port)) for port in ports)
        with to_first, to_second:
            for each in (to_first, to_second):
                each.setblocking(False)
            silent.cut_off(frozenset({"ps:0", "worker:1"}))
            assert to_second.recv(1) == b""
            with pytest.raises(BlockingIOError):
                to_first.recv(1)
