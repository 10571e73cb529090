"""Runs all tasks of a job as processes on this machine."""
