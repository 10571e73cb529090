"""The files of others that the page brings are those of the published packages, to the byte."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

VENDOR = Path(__file__).parents[2] / "trainer/page/static/vendor"
FILES = {
    "uPlot.iife.min.js": "package/dist/uPlot.iife.min.js",
    "uPlot.min.css": "package/dist/uPlot.min.css",
    "uPlot.LICENSE": "package/LICENSE",
}


@pytest.mark.skipif(not shutil.which("npm"), reason="npm is missing")
def test_uplot_is_what_npm_has(tmp_path: Path) -> None:
    found = re.search(r"\(v([\d.]+)\)", (VENDOR / "uPlot.iife.min.js").read_text()[:200])
    assert found
    subprocess.run(["npm", "pack", "--silent", f"uplot@{found[1]}"], cwd=tmp_path, check=True, timeout=120)
    (archive,) = tmp_path.glob("uplot-*.tgz")
    with tarfile.open(archive) as packed:
        for name, path in FILES.items():
            file = packed.extractfile(path)
            assert file
            assert file.read() == (VENDOR / name).read_bytes(), name
    assert {path.name for path in VENDOR.iterdir()} == set(FILES)
