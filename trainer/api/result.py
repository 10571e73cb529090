"""The result of a job, with its numbers as attributes."""

from __future__ import annotations

from trainer.model_dir import result
from trainer.model_dir.result import Computed, Training


class Result(result.Result):
    """What result.json holds. Its numbers are attributes too: `test_accuracy`, `steps`, or what a program reported.

    `figures` has all that the workload made: `figures.test` of one that trained, `figures.result` of a graph job,
    `figures.reported` of a program. `document()` is the JSON object.
    """

    def __getattr__(self, name: str) -> float:
        """
        Raises:
            AttributeError: there is no such number; the message names those that there are.
        """
        numbers = self._numbers() if "figures" in vars(self) and not name.startswith("_") else {}
        if name in numbers:
            return numbers[name]
        raise AttributeError(f"result: {name!r}: no such number; it has {', '.join(numbers) or 'none'}")

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._numbers()})

    def _numbers(self) -> dict[str, float]:
        found = self.figures
        if isinstance(found, Training):
            values = {**vars(found), **{f"test_{name}": value for name, value in found.test.items()}}
        elif isinstance(found, Computed):
            values = found.result
        else:
            values = {**vars(found), **found.reported}
        return {name: value for name, value in values.items() if isinstance(value, (int, float))}
