"""Opens a target by its name, and refuses options that it does not have."""

from __future__ import annotations

from trainer.job.errors import UserError
from trainer.targets import base


def default() -> str:
    """The target that is meant where none is named."""
    return next(iter(base.TARGETS))


def open_target(name: str, **options: str | bool | None) -> base.Target:
    """
    Raises:
        UserError: there is no such target, it does not have an option that is set, or a package is missing.
    """
    asked = {option: value for option, value in options.items() if value}
    for option, others in base.lacking(name, asked):
        raise UserError(f"{option}: is no option of target {name!r}; it is for {' or '.join(map(repr, others))}")
    return base.load(name, **{option: asked[option] for option in ("namespace", "keep") if option in asked})
