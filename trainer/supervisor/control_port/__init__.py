"""The HTTP server of a task, and requests to those of other tasks."""
