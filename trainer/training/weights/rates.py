"""A learning rate that was changed in the code or the spec, while a job goes on from a checkpoint.

The rate of a checkpoint is that of its step, which a callback may have changed. It stays, unless code or spec give
another one than when the checkpoint was written: then theirs holds. A schedule has no variable of its own: it may take
the place of a rate, and the reverse.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trainer.model_dir import checkpoint
from trainer.model_dir.checkpoint_meta import Meta, Variable
from trainer.training.model.state import TrainState

_PLACE = 1
"""The place of the rate among an optimizer's variables (keras/src/optimizers/base_optimizer.py)."""


def names(saved: Mapping[str, Variable], here: Mapping[str, Variable]) -> dict[str, str | None]:
    """The names of the job's variables for those of a checkpoint, if an optimizer has a schedule in place of a rate, or
    the reverse; None for a rate that the job has no more."""
    renamed: dict[str, str | None] = {}
    for place in _changed(saved, here):
        optimizer, was = place.partition(".")[0], _is_rate(saved.get(place))
        for name in saved:
            part, _, number = name.partition(".")
            if part == optimizer and int(number) >= _PLACE:
                dropped = was and int(number) == _PLACE
                renamed[name] = None if dropped else f"{optimizer}.{int(number) + (-1 if was else 1):03d}"
    return renamed


def _changed(saved: Mapping[str, Variable], here: Mapping[str, Variable]) -> list[str]:
    """The places of rates that either the checkpoint or the job has."""
    optimizers = dict.fromkeys(name.partition(".")[0] for name in here if name.startswith("optimizer"))
    places = [f"{optimizer}.{_PLACE:03d}" for optimizer in optimizers]
    return [place for place in places if _is_rate(saved.get(place)) != _is_rate(here.get(place))]


def _lacking(saved: Mapping[str, Variable], here: Mapping[str, Variable]) -> list[str]:
    """The rates that a checkpoint lacks."""
    return [place for place in _changed(saved, here) if _is_rate(here.get(place))]


def renamed(saved: Mapping[str, Variable], here: Mapping[str, Variable]) -> dict[str, Variable]:
    """What a checkpoint has, by the names of the job's variables, with the rates that it lacks."""
    new = names(saved, here)
    described = {str(new.get(name, name)): each for name, each in saved.items() if new.get(name, name) is not None}
    return described | {place: here[place] for place in _lacking(saved, here)}


def given(meta: Meta, state: TrainState) -> tuple[checkpoint.Values, list[str]]:
    """The rates that replace those of a checkpoint, by the names of their variables, and a line about each."""
    then, values, lines = meta.get("rates"), dict[str, checkpoint.Array](), list[str]()
    for place in _lacking(meta.get("variables", {}), state.description()):
        values[place] = np.array(state.rates[place.partition(".")[0]], np.float32)
    for optimizer, now in state.rates.items():
        if then is None or optimizer not in then or then[optimizer] == now:
            continue
        before = "a schedule" if then[optimizer] is None else f"{then[optimizer]:g}"
        after = "a schedule" if now is None else f"{now:g}"
        which = "" if len(state.rates) == 1 else f" of {optimizer}"
        lines.append(
            f"the learning rate{which} is {after} from step {meta['step'] + 1} on, as code or spec give it now: it was "
            f"{before} when the checkpoint was written"
        )
        if now is not None:
            values[f"{optimizer}.{_PLACE:03d}"] = np.array(now, np.float32)
    return values, lines


def with_given(
    arrays: checkpoint.Arrays, meta: Meta, here: Mapping[str, Variable], given: Mapping[str, checkpoint.Array]
) -> checkpoint.Arrays:
    """The arrays of a checkpoint by the names of the job's variables, with the rates that replace its own."""
    saved = meta.get("variables", {})
    new, lacking = names(saved, here), _lacking(saved, here)
    rest = dict(given)
    for file_name, array in arrays:
        name = new.get(file_name, file_name)
        if name is None:
            continue
        yield name, rest.pop(name, array)
        optimizer, _, number = name.partition(".")
        after = f"{optimizer}.{_PLACE:03d}"
        if number == f"{_PLACE - 1:03d}" and after in lacking:  # the checkpoint has none in its place
            yield after, rest.pop(after)


def _is_rate(variable: Variable | None) -> bool:
    return variable is not None and variable["path"].rpartition("/")[2] == "learning_rate"
