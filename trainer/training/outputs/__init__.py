"""Writes the outputs of training: checkpoints, curves, exported models."""
