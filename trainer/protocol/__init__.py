"""What crosses the border of a process."""
