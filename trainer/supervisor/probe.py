"""`python -m trainer.supervisor.probe healthz` prints the supervisor's answer in this container; exit code 1 if none.

For HEALTHCHECK and `trainer status`, without a shell or curl in the image. Imports little: it runs every 30 seconds.
"""

from __future__ import annotations

import http.client
import json
import os
import sys

from trainer.job import environment
from trainer.job.names import TF_PORT, control_port, split_address
from trainer.supervisor import relay

SECONDS = 10.0
"""The stacks of all tasks take some seconds."""


def main(path: str) -> int:
    config = json.loads(os.environ["TF_CONFIG"])
    task_type, index = config["task"]["type"], config["task"]["index"]
    if task_type == "evaluator":
        port = int(os.environ.get(environment.CONTROL_PORT) or control_port(TF_PORT))
    else:
        port = control_port(split_address(config["cluster"][task_type][index])[1])
    if path == "relay":
        return relay.run(port)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("GET", f"/{path}")
        answer = connection.getresponse()
        print(answer.read().decode())
        return int(answer.status != http.client.OK)
    except (OSError, http.client.HTTPException) as error:
        print(f"port {port}: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
