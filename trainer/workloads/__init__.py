"""The built-in workloads, and the contract for a user's workload file (`workload.py`)."""
