"""`python -m trainer.runtime.ask`: the probe under the name that manifests of version 0.1 have."""

import sys

from trainer.supervisor.probe import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
