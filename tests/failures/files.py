"""What a cell's job has left in files: its own count of steps, its checkpoints, its result."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trainer.model_dir import layout


@dataclass(frozen=True)
class Files:
    """The folders of a job, as this machine sees them."""

    counts: Path
    """A file for each life of a task that builds the model or computes the graph, with a line for each step."""
    model_dir: Path

    def lives(self, strategy: str) -> list[list[float]]:
        """The times of the steps, since 1970, of each life of the task that counts; the oldest life first.

        Under multi_worker_mirrored every worker counts the same steps, so those of worker 0 are taken.
        """
        counting = "worker-0-" if strategy == "multi_worker_mirrored" else "chief-0-"
        paths = sorted(self.counts.glob(f"{counting}*"), key=lambda path: int(path.name.removeprefix(counting)))
        # A task that is killed leaves its last line incomplete: that step was not made.
        texts = [path.read_text() for path in paths]
        return [sorted(map(float, text[: text.rfind("\n") + 1].split())) for text in texts]

    def steps(self, strategy: str) -> int:
        """How many steps were made in all lives."""
        return sum(map(len, self.lives(strategy)))

    def checkpoints(self) -> list[int]:
        """Steps of the complete ones."""
        return sorted(int(path.name.removeprefix("step-")) for path in self.model_dir.glob("checkpoints/step-*"))

    def is_writing(self, step: int) -> bool:
        return any(self.model_dir.glob(f"checkpoints/.tmp-step-{step:08d}-*/variables.npz"))

    def updates(self) -> int:
        """How many updates the optimizer of the newest checkpoint has counted."""
        path = self.model_dir / f"checkpoints/step-{self.checkpoints()[-1]:08d}"
        variables = json.loads((path / "meta.json").read_text())["variables"]
        with np.load(path / "variables.npz") as values:
            return max(int(values[name]) for name, each in variables.items() if each["path"].endswith("iteration"))

    def first_step_is_known(self) -> bool:
        """Whether the chief has heard that a step was made."""
        return _json(layout.state(self.model_dir)).get("seconds_to_first_step") is not None

    def result(self) -> dict[str, Any]:
        """result.json; empty if there is none."""
        return _json(layout.result(self.model_dir))

    def scored(self) -> list[int]:
        """The steps of the checkpoints that the evaluator has scored."""
        try:
            lines = (self.model_dir / "evaluation.jsonl").read_text().splitlines()
        except OSError:
            return []
        return [int(json.loads(line)["step"]) for line in lines]


def _json(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        return {}
