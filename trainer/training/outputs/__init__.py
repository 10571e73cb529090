"""What a training leaves: checkpoints, curves, exported models."""
