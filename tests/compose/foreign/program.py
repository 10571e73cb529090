"""Prints what it imports: the packages of its image, and trainer."""

import importlib.util
import json
import os
import sys

import aiohttp
import numpy
import pydantic

import trainer

trainer.report(step=1)
task = json.loads(os.environ["TF_CONFIG"])["task"]
print("versions", task["index"], numpy.__version__, pydantic.VERSION, aiohttp.__version__, trainer.__version__)
print("leaked", task["index"], [path for path in sys.path if path.startswith("/opt/trainer/packages")])
print("rich", task["index"], importlib.util.find_spec("rich") is not None)
