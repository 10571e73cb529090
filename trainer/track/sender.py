"""Sends what a model_dir has of its job to one run: parameters, tags, figures, artifacts, the end."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from zlib import crc32

import yaml

from trainer.job.errors import Exit
from trainer.job.spec import JobSpec
from trainer.job.tracking import Tracking
from trainer.model_dir import layout
from trainer.model_dir.files import json_object, read_json
from trainer.model_dir.regular import is_inside
from trainer.protocol.log_lines import log_line
from trainer.track import curves, run_facts, server
from trainer.track.curves import Curve, Record
from trainer.track.server import MLflow, Names, Point, Refused, Run, Status, Unavailable
from trainer.track.story import Story

ID = "trainer.id"
"""The tag by which a job finds its run again, also if the answer to the request that made it was lost."""
SENT, MODEL = "trainer.artifacts", "trainer.model"
"""Tags: what was sent, by name with size and time; the version of the registered model."""
_MODEL = "export"
"""The folder of the model among the artifacts."""


@dataclass
class Memory:
    """What one process need not say twice."""

    complained: set[str] = field(default_factory=set)

    def warn(self, text: str) -> None:
        if text not in self.complained:
            log_line(f"warning: {text}")
        self.complained.add(text)


class Sender:
    """One run. Made anew after each failure: what was read and not sent is read again, for only the server knows what
    it has got. Its methods raise Unavailable or Refused."""

    def __init__(self, to: MLflow, spec: JobSpec, given: Tracking, run_id: str, memory: Memory) -> None:
        self._server, self._spec, self._given, self._id, self._memory = to, spec, given, run_id, memory
        self._dir = spec.directory
        self._curves: list[Curve] = curves.of(self._dir)
        self._names, self._closed = Names(), ""
        self.run = Run("", "")
        self._steps: dict[str, int] = {}
        """By metric the last step that was sent."""

    def open(self, story: Story) -> None:
        """Finds or makes the run, and gives it the parameters of the job."""
        experiment = self._server.experiment(self._given.experiment or self._spec.name)
        run = self._server.find(experiment, ID, self._id)
        if run is None:
            run = self._server.create(experiment, self._spec.name, story.started, {ID: self._id})
        elif run.status != "RUNNING" and story.ended is None:
            self._server.set_status(run, "RUNNING")
        self.run, self._steps = run, dict(run.steps)
        names = Names()
        params = {names.of(name): text[: server.LONGEST_VALUE] for name, text in run_facts.params(self._spec).items()}
        new = iter({name: text for name, text in params.items() if name not in run.params}.items())
        while some := dict(islice(new, server.MOST_PARAMS)):
            self._server.log(run, params=some)
        changed = [f"{n}: {run.params[n]} -> {text}" for n, text in params.items() if run.params.get(n, text) != text]
        self._tag(
            run_facts.tags(self._spec)
            | (run_facts.no_longer_true(run.tags) if story.ended is None else {})
            | ({"trainer.changed": "; ".join(changed)} if changed else {})
        )

    def send(self, story: Story) -> None:
        """Sends what is new. After the end of the job that comes first: figures may be too many for the time left."""
        if story.ended is None:
            self._tag(run_facts.story_tags(story))
        else:
            self._end(story)
        while points := self._collect(last=story.ended is not None):
            for first in range(0, len(points), server.BATCH):
                self._log(points[first : first + server.BATCH])
        if story.ended is not None:
            if story.code == Exit.OK:  # after the curves of the same names
                self._log(self._new(Record(story.ended.step, story.ended.time, _results(self._dir)))[: server.BATCH])
            self._artifacts(story)

    def _tag(self, tags: dict[str, str]) -> None:
        """Sets tags that differ from those that the run has."""
        if new := {name: text for name, text in tags.items() if self.run.tags.get(name) != text}:
            self._server.log(self.run, tags=new)

    def _end(self, story: Story) -> None:
        assert story.ended is not None
        if self._closed == (mark := f"{story.ended.time}"):
            return
        status: Status = "FAILED"
        if story.code in (Exit.OK, Exit.STOPPED):
            status = "FINISHED" if story.code == Exit.OK else "KILLED"
        self._server.set_status(self.run, status, story.ended.time)
        self._tag(run_facts.story_tags(story))
        self._closed = mark

    def _collect(self, *, last: bool) -> list[Point]:
        """New values, some hundreds at once; with `last` the last ones of each curve too."""
        found: list[Point] = []
        for curve in self._curves:
            for record in curve.read():
                found += self._new(record)
                if len(found) >= server.BATCH:
                    return found
            if last:
                found += [point for record in curve.last() for point in self._new(record)]
        return found

    def _new(self, record: Record) -> list[Point]:
        points = []
        for name, value in record.figures.items():
            fit = self._names.of(name)
            if record.step > self._steps.get(fit, -1):
                self._steps[fit] = record.step
                points.append(Point(fit, value, record.step, record.time))
        return points

    def _log(self, points: list[Point]) -> None:
        try:
            self._server.log(self.run, points)
        except Refused as error:
            if self._server.find(self.run.experiment_id, ID, self._id) is None:
                raise Unavailable(f"the run {self.run.run_id} is gone; another one is made") from None
            self._memory.warn(f"tracking.mlflow: figures are left out: {error}")

    # Artifacts. ---------------------------------------------------------------------------------------

    def _artifacts(self, story: Story) -> None:
        """Sends the files that differ from those that were sent, the largest last, and registers a new model."""
        sent = {name: str(mark) for name, mark in json_object(self.run.tags.get(SENT, "")).items()}
        with tempfile.TemporaryDirectory() as folder:
            for path, place in _files(self._spec, Path(folder)):
                mark, name = _mark(path), f"{place}/{path.name}".lstrip("/")
                if sent.get(name) != mark and self._upload(path, place, name):
                    sent[name] = mark
                    self._tag({SENT: json.dumps(sent)})
        if self._given.register_as and story.code == Exit.OK:
            self._register(self._given.register_as, sent)

    def _upload(self, path: Path, place: str, name: str) -> bool:
        if f"artifact {name}" in self._memory.complained:
            return False
        try:
            self._server.upload(self.run, path, place)
        except Refused as error:
            self._memory.warn(f"tracking.mlflow: {name} is not kept as an artifact: {error}")
            self._memory.complained.add(f"artifact {name}")
            return False
        return True

    def _register(self, name: str, sent: dict[str, str]) -> None:
        model = sent.get(f"{_MODEL}/{layout.exported_model(self._dir).name}")
        if model is None:
            self._memory.warn(f"tracking.register_as: {name!r}: there is no model of the job among the artifacts")
        elif sent.get(key := f"registered as {name}") != model:
            try:
                version = self._server.register(self.run, _MODEL, name)
            except Refused as error:
                self._memory.warn(f"tracking.register_as: {name!r}: {error}")
                return
            self._tag({SENT: json.dumps({**sent, key: model}), MODEL: f"{name}/{version}"})
            log_line(f"tracking.register_as: the model is version {version} of {name}")


def _files(spec: JobSpec, folder: Path) -> Iterator[tuple[Path, str]]:
    """Files that become artifacts, and the folders that they are in there.

    Args:
        folder: an empty one, for files that are made.
    """
    made = folder / "spec.yaml"
    document = spec.model_dump(mode="json", exclude_defaults=True)
    made.write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True), encoding="utf-8")
    yield made, ""
    model_dir = spec.directory
    paths = {layout.result(model_dir): "", layout.journal(model_dir, 1): "", layout.journal(model_dir): ""}
    for path, place in {**paths, layout.exported_model(model_dir): _MODEL}.items():
        if path.is_file() and not path.is_symlink() and is_inside(path, model_dir):
            yield path, place


def _mark(path: Path) -> str:
    """By which a file differs from one that was sent."""
    if path.name == "spec.yaml":  # it is made anew each time
        return f"{crc32(path.read_bytes()):08x}"
    about = path.stat()
    return f"{about.st_size}-{about.st_mtime_ns}"


def _results(model_dir: str) -> dict[str, float]:
    """The numbers of the result: scores on the test data, or what a graph has returned."""
    found = read_json(layout.result(model_dir))
    tests = {name: value for name, value in found.items() if name.startswith("test_")}
    return {**curves.numbers(tests), **curves.numbers(found.get("result"))}
