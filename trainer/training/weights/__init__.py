"""Weights from a checkpoint or from another model's file."""
