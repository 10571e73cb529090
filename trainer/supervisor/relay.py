"""`trainer probe relay`: connects stdin and stdout to the control port of this container's task, for `trainer ui`.

With the standard library alone, and little of that: a browser opens several connections, each with a process.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading

_BYTES = 1 << 16


def run(port: int) -> int:
    """Copies in both directions until one of them ends; returns the exit code."""
    try:
        connection = socket.create_connection(("127.0.0.1", port), timeout=5)
    except OSError as error:
        print(f"port {port}: {error}", file=sys.stderr)
        return 1
    connection.settimeout(None)
    threading.Thread(target=_send, args=(connection,), daemon=True).start()
    with contextlib.suppress(OSError):
        while data := connection.recv(_BYTES):
            while data:
                data = data[os.write(1, data) :]
    return 0


def _send(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := os.read(0, _BYTES):
            connection.sendall(data)
    os._exit(0)  # who asked is gone
