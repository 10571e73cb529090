"""`python -m trainer` is `trainer`."""

import sys

from trainer.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
