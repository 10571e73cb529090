"""What is trained: our own workloads, and the contract for a user's file (`workload.py`)."""
