"""`trainer track`: sends a job to an MLflow server."""

from __future__ import annotations

import argparse

from trainer.cli.shared import without_plugins
from trainer.job.addresses import address_rule, without_login
from trainer.job.errors import UserError

INSTALL = "pip install 'mlflow-skinny>=3.17,<4'"


def track(args: argparse.Namespace) -> int:
    without_plugins()
    if args.mlflow and (rule := address_rule(args.mlflow)):
        raise UserError(f"--mlflow: {without_login(args.mlflow)!r}: {rule}")
    from trainer.track.stop import Stop

    stop = Stop()
    try:
        from trainer.track import tracker
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "mlflow":
            raise
        raise UserError(f"trainer track: MLflow's client is not installed; run: {INSTALL}") from None
    names = ("model_dir", "mlflow", "experiment", "register", "keep", "next", "wait", "index")
    return int(tracker.main(tracker.Asked(**{name: getattr(args, name) for name in names}), stop))
