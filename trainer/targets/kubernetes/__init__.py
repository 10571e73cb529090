"""Runs jobs on a Kubernetes cluster."""
