"""Records in files: an index of their blocks, and batches read by it."""
