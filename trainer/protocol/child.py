"""What a task's child does, as its supervisor knows it from the child's events: in reports, in /status, in /metrics."""

# No annotations from __future__: pydantic 2.5 looks for their names in the module of the adapter.

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace

from trainer.protocol.types import Amount, Figures, Number, Step, Text, may_be_sent, plain_text


@dataclass(kw_only=True)
class ChildStatus:
    """The status of a task's child. A field is null, or false, until an event sets it."""

    pid: Number | None = None
    """Process id of the task's supervisor."""
    child_pid: Number | None = None
    """Process id of the child."""
    step: Step | None = None
    """The last step; of an evaluator that of the last checkpoint that it has scored."""
    steps: Step | None = None
    """The last step of the whole job."""
    line: Text | None = None
    """The line that the child printed when it began to train."""
    copying: Text | None = None
    """What the task copies before it runs a child."""
    indexed: Step | None = None
    """Changes while the child indexes its files."""
    has_index: bool = False
    """Whether the child has indexed all files that it trains on."""
    last_checkpoint: Step | None = None
    """The step of the newest checkpoint that this child has written."""
    seconds_saving: Amount | None = None
    """Seconds for which training has waited for checkpoints."""
    seconds_writing: Amount | None = None
    """Seconds in which checkpoints were written, while training continued."""
    checkpoints: Step | None = None
    """Number of checkpoints written."""
    steps_made: Step | None = None
    """Number of steps that the seconds of steps are of."""
    seconds_input: Amount | None = None
    """Seconds for which these steps waited for their data."""
    seconds_compute: Amount | None = None
    """Seconds of these steps for all else than input and exchange."""
    seconds_exchange: Amount | None = None
    """Seconds for which the task had nothing to do but to exchange values with other tasks, and to wait for them."""
    seconds_wait: Amount | None = None
    """Seconds between these steps: checkpoints, validation, callbacks."""
    input_share: float | None = None
    """Share of the time of steps in which they waited for data, since the last log line."""
    peer_lost: Text | None = None
    """The error that the child ended with, if a lost peer may have caused it."""
    trained: bool = False
    """Whether all steps are done."""
    finishing: bool = False
    """Whether the final evaluation and export run."""
    ending: Text | None = None
    """What the child does after its last step, and what is left to do."""
    evaluating: bool = False
    """Whether callbacks and a validation run at the end of an epoch, or test data are read before the first step."""
    stopped_well: bool = False
    """Whether the child ended on request, with a checkpoint."""
    figures: Figures = field(default_factory=dict)
    """Values by the names that the user's model or program gives them; also loss and examples_per_second, the examples
    that this task trains on per second."""

    @property
    def metrics(self) -> dict[str, float]:
        """The figures that are numbers, but for loss and examples_per_second."""
        numbers = ((name, number(value)) for name, value in self.figures.items() if name not in _OF_ALL)
        return {name: value for name, value in numbers if value is not None}

    @property
    def loss(self) -> float | None:
        return number(self.figures.get("loss"))

    @property
    def examples_per_second(self) -> float | None:
        return number(self.figures.get(_RATE))

    def slowed(self, slowness: float) -> "ChildStatus":
        """The status while steps take so many times as long as those that its rate was measured in."""
        rate = self.examples_per_second
        if rate is None or slowness == 1:
            return self
        return replace(self, figures=with_rate(self.figures, rate / slowness))

    @property
    def made_all_steps(self) -> bool:
        return self.steps is not None and self.step is not None and self.step >= self.steps

    def known(self) -> dict[str, object]:
        """The fields that are set, by name."""
        return {name: value for name, value in vars(self).items() if name in FIELDS and is_set(value)}

    def sendable(self) -> dict[str, object]:
        """The fields that are set, with texts and figures that a report may have."""
        known = {name: plain_text(value) if isinstance(value, str) else value for name, value in self.known().items()}
        return {**known, "figures": may_be_sent(self.figures)}


FIELDS = tuple(each.name for each in fields(ChildStatus))
_RATE = "examples_per_second"
_OF_ALL = ("loss", _RATE)


def with_rate(figures: Figures, rate: float | None) -> Figures:
    """The figures with another rate; without one if it is None."""
    others = {name: value for name, value in figures.items() if name != _RATE}
    return others if rate is None else {**others, _RATE: rate}


def is_set(value: object) -> bool:
    return value is not None and value is not False and value != {}


def number(value: object) -> float | None:
    """A finite number as a float; None if a value is none, or is too large for a column. What a child sends is not
    validated."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not -1e300 < value < 1e300:
        return None
    return float(value)


def measured(row: Mapping[str, object]) -> ChildStatus:
    """The coordinator's measurements of a ps-worker, from its event."""
    made = ChildStatus()
    for name, value in row.items():
        if name not in _MEASURED:
            made.figures[name] = value
        elif (found := number(value)) is not None and found >= 0:
            setattr(made, name, int(found) if name in _WHOLE else found)
    return made


_WHOLE = ("step", "steps_made")
_MEASURED = (*_WHOLE, "seconds_input", "seconds_compute", "seconds_exchange", "seconds_wait")


def together(own: ChildStatus, of_coordinator: ChildStatus | None) -> ChildStatus:
    """A ps-worker's own status, and where that knows nothing the coordinator's measurements."""
    if of_coordinator is None:
        return own
    made = replace(of_coordinator)
    for name, value in own.known().items():
        setattr(made, name, value)
    made.figures = {**of_coordinator.figures, **own.figures}
    return made
