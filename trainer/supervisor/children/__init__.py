"""The processes that a task runs: children that train or serve, programs, and what they print."""
