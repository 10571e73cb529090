"""Distributed TensorFlow training that deploys: one job spec, real processes, containers and pods."""

__version__ = "0.2.0"
