"""The files of a job on its volume."""
