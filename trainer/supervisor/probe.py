"""`python -m trainer.supervisor.probe healthz` prints the supervisor's answer in this container; exit code 1 if none.

For HEALTHCHECK and `trainer status`, without a shell or curl in the image. Imports little: it runs every 30 seconds.
`relay` in place of a path connects stdin and stdout to the control port, for `trainer ui`: a browser opens several
connections, each with a process.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import sys
import threading

from trainer.job import environment
from trainer.job.names import TF_PORT, control_port, split_address

ANSWER_SECONDS = 10.0
"""How long the supervisor may take to answer: the stacks of all tasks take some seconds."""
_BYTES = 1 << 16


def main(path: str) -> int:
    config = json.loads(os.environ["TF_CONFIG"])
    task_type, index = config["task"]["type"], config["task"]["index"]
    if task_type == "evaluator":
        port = int(os.environ.get(environment.CONTROL_PORT) or control_port(TF_PORT))
    else:
        port = control_port(split_address(config["cluster"][task_type][index])[1])
    if path == "relay":
        return _relay(port)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", f"/{path}")
        answer = connection.getresponse()
        print(answer.read().decode())
        return int(answer.status != http.client.OK)
    except (OSError, http.client.HTTPException) as error:
        print(f"port {port}: {error}", file=sys.stderr)
        return 1


def _relay(port: int) -> int:
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
