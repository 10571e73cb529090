"""Asks the package index whether it has each locked wheel, by hash, for each platform; installs nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# In uv's words. TensorFlow's wheels ask for glibc 2.27 and macOS 12.
LINUX = ("x86_64-manylinux_2_28", "aarch64-manylinux_2_28")
MACOS = "aarch64-apple-darwin"
CASES = [
    *(("requirements.lock", platform, python) for platform in (*LINUX, MACOS) for python in ("3.10", "3.13")),
    *(
        (f"images/requirements-{image}.lock", platform, "3.13")
        for image in ("cpu", "tensorboard", "track")
        for platform in LINUX
    ),
    ("images/requirements-cuda.lock", LINUX[0], "3.13"),
    *(
        ("images/requirements-supervisor.lock", f"{machine}-manylinux_2_17", python)
        for machine in ("x86_64", "aarch64")
        for python in ("3.10", "3.11", "3.12", "3.13")
    ),
    *(("images/requirements-uv.lock", platform, "3.13") for platform in LINUX),
    ("tests/programs/tf215.lock", LINUX[0], "3.11"),
    *(("tests/local/notebook.lock", platform, "3.13") for platform in (*LINUX, MACOS)),
    *(("tests/programs/mlflow.lock", platform, python) for platform in (*LINUX, MACOS) for python in ("3.10", "3.13")),
]


@pytest.mark.parametrize(("lock", "platform", "python"), CASES)
def test_each_package_has_a_wheel(lock: str, platform: str, python: str, tmp_path: Path) -> None:
    command = [
        *(sys.executable, "-m", "uv", "pip", "install", "--dry-run", "--no-deps", "--require-hashes"),
        *("--only-binary", ":all:", "--python-platform", platform, "--python-version", python),
        *("--target", str(tmp_path), "--requirements", lock),
    ]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=240)
    assert ended.returncode == 0, ended.stderr
