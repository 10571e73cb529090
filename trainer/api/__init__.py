"""The Python API, of which trainer has the names: jobs, wherever they run. The command line is built on it."""
