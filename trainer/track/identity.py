"""mlflow.json: the id by which a model_dir finds its run, and the lock of the one process that sends it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
from typing import TextIO
from uuid import uuid4

from trainer.job.errors import UserError
from trainer.model_dir import layout
from trainer.model_dir.files import json_object
from trainer.model_dir.regular import regular

LONGEST = 1 << 16
"""The most characters of mlflow.json that are read."""


class Identity:
    """Made once for each process: the id is read or made, and the file is locked until the process ends."""

    def __init__(self, model_dir: str) -> None:
        """
        Raises:
            UserError: another process sends this job, or model_dir cannot be written.
        """
        self._dir = model_dir
        self.id = ""
        self._file = self._open()

    def close(self) -> None:
        self._file.close()

    def keep(self) -> None:
        """Writes the file again if a program has emptied its model_dir."""
        with contextlib.suppress(OSError):
            if layout.mlflow(self._dir).exists():
                return
        with contextlib.suppress(UserError):  # the disk is full, of which the job complains itself
            before, self._file = self._file, self._open()
            before.close()

    def _open(self) -> TextIO:
        path = layout.mlflow(self._dir)
        try:
            path.parent.mkdir(exist_ok=True)
            file = open(path, "a+", opener=regular)  # noqa: SIM115
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}; it keeps the id of the run") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise UserError(f"{self._dir}: another `trainer track` sends this job; end that one first") from None
        except OSError:  # some network file systems have no locks
            pass
        file.seek(0)
        found = json_object(file.read(LONGEST)).get("id")
        if self.id or not isinstance(found, str) or not re.fullmatch(r"[0-9a-f]{32}", found):
            self.id = self.id or uuid4().hex
            file.truncate(0)
            file.write(json.dumps({"id": self.id}) + "\n")
            file.flush()
            os.fsync(file.fileno())  # before any request
        else:
            self.id = found
        return file
