"""When a program that trains has made which steps, while it goes on."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from bench import run
from bench.run import Process


class Mark(NamedTuple):
    step: int
    time: float
    accuracy: float | None = None


class Marks:
    """Of the first of some processes: the lines of its metrics.jsonl, or those that it prints as step=N time=T."""

    def __init__(self) -> None:
        self._found: queue.SimpleQueue[Mark | str] = queue.SimpleQueue()
        self._ended = threading.Event()

    def next(self) -> Mark:
        try:
            mark = self._found.get(timeout=run.SECONDS)
        except queue.Empty:
            raise SystemExit(f"no step within {run.SECONDS:g} s") from None
        if isinstance(mark, str):
            raise SystemExit(f"it ended before its time:\n{mark}")
        return mark

    def read_output(self, lines: IO[str]) -> None:
        text = ""
        for line in lines:
            if line.startswith("step="):
                step, *others = (float(word.partition("=")[2]) for word in line.split())
                self._found.put(Mark(int(step), *others))
            text += line
        self._found.put(text)

    def read_curve(self, path: Path) -> None:
        done = 0
        while not self._ended.wait(0.02):
            lines = path.read_text().splitlines(keepends=True)[done:] if path.exists() else []
            for line in lines:
                if line.endswith("\n"):
                    record = json.loads(line)
                    self._found.put(Mark(record["step"], record["time"]))
                    done += 1

    def end(self) -> None:
        self._ended.set()


def after(found: Marks, moment: float) -> Mark:
    """The first mark after a time."""
    mark = found.next()
    while mark.time < moment:
        mark = found.next()
    return mark


@contextmanager
def started(wanted: Sequence[Process], model_dir: Path) -> Iterator[Marks]:
    """The marks of processes that are killed when the context is left."""
    marks = Marks()
    with run.started(wanted) as running:
        output = running[0].stdout
        assert output is not None
        threads = [
            threading.Thread(target=marks.read_output, args=(output,), daemon=True),
            threading.Thread(target=marks.read_curve, args=(model_dir / "metrics.jsonl",), daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            yield marks
        finally:
            marks.end()
            for process in running:
                process.kill()
            for thread in threads:
                thread.join()
