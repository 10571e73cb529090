"""The wheel of trainer, as `make wheel` builds it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = [sys.executable, "-m", "uv", "--quiet"]


def build(folder: Path) -> Path:
    """Builds it in an empty folder without a package index, from a copy, for setuptools writes beside the sources."""
    shutil.copytree(ROOT / "trainer", folder / "trainer", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "trainer_launch.py"):
        shutil.copy(ROOT / name, folder)
    command = [*UV, "--offline", "build", "--wheel", "--no-build-isolation", "--python", sys.executable]
    subprocess.run([*command, "--out-dir", "dist"], cwd=folder, check=True, timeout=120)
    (built,) = (folder / "dist").glob("*.whl")
    return built
