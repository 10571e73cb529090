"""All tasks of a job as processes of this machine."""
