"""What a child does: it holds TensorFlow."""
