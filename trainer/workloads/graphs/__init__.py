"""Graph jobs: the classic tutorials of work placed by device name, each a file with a compute()."""
