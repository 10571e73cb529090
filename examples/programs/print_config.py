"""Prints the task that TF_CONFIG gives this process; needs no TensorFlow."""

import json
import os
import sys

config = json.loads(os.environ.get("TF_CONFIG", "{}"))
print("TF_CONFIG", json.dumps(config, sort_keys=True))
for name, tasks in config.get("cluster", {}).items():
    print(name, *tasks)
task = config.get("task", {})
print(f"this is {task.get('type')} {task.get('index')}, with the arguments {sys.argv[1:]}")
