"""`python -m trainer.runtime.ask`: the probe under its name of version 0.1: for manifests of that version, and for
`trainer status`, which works with images of that version too."""

import sys

from trainer.supervisor.probe import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
