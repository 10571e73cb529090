"""A program that does what its test writes for it: executes the file orders/TASK.GENERATION once it exists."""

import json
import os
import time
from pathlib import Path

task = json.loads(os.environ["TF_CONFIG"])["task"]
name = f"{task['type']}:{task['index']}.{os.environ['TRAINER_GENERATION']}"
place = Path(os.environ["ORDERS"])
(place / f"{name}.started").write_text(str(os.getpid()))
while not (place / name).exists():
    time.sleep(0.02)
exec(compile((place / name).read_text(), place / name, "exec"))  # noqa: S102
