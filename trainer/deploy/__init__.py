"""On the user's machine: runs a job's tasks and shows them. Imports no TensorFlow and nothing of runtime."""
