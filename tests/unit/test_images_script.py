"""What `make images` builds for which platform: the arguments passed to docker."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = "scripts/images.sh"
MACHINE = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}[os.uname().machine]


def run(tmp_path: Path, *command: str, **settings: str) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """How a command ended, and the words of each `docker build`, by a docker that only writes them down."""
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/words\n')
    docker.chmod(0o755)
    ours = ("PLATFORM", "BASE_IMAGE", "TRAINER_DATA_DIR", "BUILD_FLAGS")
    environ = {name: value for name, value in os.environ.items() if name not in ours}
    environ |= {"PATH": f"{tmp_path}:{os.environ['PATH']}", **settings}
    ended = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=60)
    words = tmp_path / "words"
    return ended, [line.split() for line in words.read_text().splitlines()] if words.exists() else []


@pytest.mark.parametrize(
    ("platform", "variants"),
    [
        ("linux/amd64", ["cpu", "cuda", "tensorboard", "track", "supervisor"]),
        ("linux/arm64", ["cpu", "tensorboard", "track", "supervisor"]),
    ],
)
def test_a_platform_gets_the_images_that_it_can_have(tmp_path: Path, platform: str, variants: list[str]) -> None:
    ended, built = run(tmp_path, SCRIPT, PLATFORM=platform)
    assert ended.returncode == 0, ended.stderr
    assert [words[words.index("--target") + 1] for words in built] == variants
    assert {words[words.index("--platform") + 1] for words in built} == {platform}


def test_without_a_setting_docker_chooses_its_own(tmp_path: Path) -> None:
    ended, (words,) = run(tmp_path, SCRIPT, "cpu", BUILD_FLAGS="--network=host --pull")
    assert ended.returncode == 0, ended.stderr
    assert "--platform" not in words
    assert words[-3:] == ["--network=host", "--pull", "."]
    assert words[words.index("--tag") + 1] == "trainer:cpu"


@pytest.mark.parametrize(
    ("platform", "variant", "line"),
    [
        ("linux/arm64", "cuda", "images: cuda: must be one of cpu tensorboard track supervisor on linux/arm64"),
        (f"linux/{MACHINE}", "gpu", "images: gpu: must be one of cpu "),
        ("linux/riscv64", "cpu", "images: PLATFORM linux/riscv64: must be linux/amd64 or linux/arm64"),
    ],
)
def test_what_cannot_be_built_is_refused_in_one_line(tmp_path: Path, platform: str, variant: str, line: str) -> None:
    ended, built = run(tmp_path, SCRIPT, variant, PLATFORM=platform)
    assert (ended.returncode, built) == (2, [])
    assert ended.stderr.startswith(line)
    assert ended.stderr.count("\n") == 1


def test_make_hands_the_platform_on(tmp_path: Path) -> None:
    ended, built = run(tmp_path, "make", "images", "PLATFORM=linux/arm64")
    assert ended.returncode == 0, ended.stderr
    assert {words[words.index("--platform") + 1] for words in built} == {"linux/arm64"}
