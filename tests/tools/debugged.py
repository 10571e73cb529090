"""`trainer debug` of a job, and what its archive says."""

from __future__ import annotations

import os
import re
import subprocess
import zipfile
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

from tests.tools.harness import TRAINER
from trainer.debug.symptoms import plain


class Debugged:
    """The archive of a job; `words` are the arguments of `trainer debug`."""

    def __init__(
        self, folder: Path, *words: object, environ: Mapping[str, str] | None = None, user: int | None = None
    ) -> None:
        path = folder / "debug.zip"
        ended = subprocess.run(
            [*TRAINER, "debug", *map(str, words), "--output", str(path)],
            capture_output=True, text=True, timeout=240, env={**os.environ, **(environ or {})}, user=user,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stdout + ended.stderr
        self.printed = ended.stdout
        _, self.headline, *self.advice = ended.stdout.splitlines()
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
            self.files = {name.partition("/")[2]: archive.read(name) for name in archive.namelist()}
        self.page = Text(self.files["index.html"].decode()).text

    def text(self, path: str) -> str:
        return self.files[path].decode()

    def advises(self, shown: str) -> bool:
        """Whether the verdict has a row of the table of troubles, by its symptom."""
        return re.sub(r"`", "", plain(shown)) in self.page


class Text(HTMLParser):
    """What a reader sees of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text = ""
        self.feed(html)

    def handle_data(self, data: str) -> None:
        self.text += data
