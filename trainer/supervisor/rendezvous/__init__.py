"""The chief's state machine, without I/O: which tasks are there, and what follows when one is lost."""
