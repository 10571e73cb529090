"""Targets, where jobs run: this machine, a Docker Engine, a Kubernetes cluster. Not part of the images."""
