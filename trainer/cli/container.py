"""The commands of a container: its task, and the probe of its supervisor."""

from __future__ import annotations

import argparse

from trainer.cli.startup import without_plugins


def task(_: argparse.Namespace) -> int:
    without_plugins()
    from trainer.supervisor.main import main

    return main()


def probe(args: argparse.Namespace) -> int:
    from trainer.supervisor.probe import main

    return main(args.path)
