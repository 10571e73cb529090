"""Becomes the package that this folder is in: see `python_path` in `trainer/supervisor/children/interpreter.py`."""

import importlib.util
import sys
from pathlib import Path

_spec = importlib.util.spec_from_file_location("trainer", Path(__file__).parents[4] / "__init__.py")
assert _spec is not None
assert _spec.loader is not None
# The import system returns what sys.modules holds in the end.
sys.modules["trainer"] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(sys.modules["trainer"])
