"""Runs modules of the `trainer` that lies beside this file, also where another package of that name comes first.

`trainer` is a common name: it is that of the package that Google's AI Platform runs, with its trainer/task.py, in the
working directory or on PYTHONPATH. The command `trainer` begins here, and `python PATH/trainer_launch.py MODULE WORDS`
calls `main()` of a module of trainer. Neither searches the working directory for modules, as `python -m` does: a file
queue.py there must not hide the standard library's.
"""

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parent
if sys.flags.no_site:  # the command of the image trainer:supervisor, which has packages for each Python
    packages = ROOT / "packages"
    own = packages / f"{sys.version_info[0]}.{sys.version_info[1]}"
    if not own.is_dir():
        there = ", ".join(sorted(path.name for path in packages.glob("*")))
        text = (
            f"trainer: {sys.executable} is Python {own.name}, and {packages} is for {there}; set TRAINER_PYTHON to one"
        )
        print(text, file=sys.stderr)
        sys.exit(2)
    sys.path.append(str(own))
sys.path.insert(0, str(ROOT))
import_module("trainer")  # from now on its modules are found in its own folder
del sys.path[0]


def main() -> object:
    """The command `trainer`; returns its exit code."""
    return import_module("trainer.cli.main").main()


# Another name: multiprocessing imports the file of the main module in the processes that it spawns.
if __name__ == "__main__":
    if not getattr(sys.flags, "safe_path", sys.flags.isolated):
        del sys.path[0]  # the folder of this file, which may hold all packages of an environment
    sys.exit(import_module(sys.argv.pop(1)).main())
