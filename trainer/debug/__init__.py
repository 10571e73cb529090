"""What `trainer debug` makes of a job's files, objects and logs: an archive without secrets, and a verdict."""
