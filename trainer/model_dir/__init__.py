"""What a job keeps on its volume."""
