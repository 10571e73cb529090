"""One module for each way to train, and for what the other tasks do meanwhile."""
