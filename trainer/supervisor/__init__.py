"""What each task runs: it meets the other tasks and owns a child, which trains. Never imports TensorFlow."""
