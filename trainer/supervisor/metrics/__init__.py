"""What a task uses, and its /metrics."""
