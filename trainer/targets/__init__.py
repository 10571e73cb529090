"""Where a job runs: this machine, a Docker Engine, a Kubernetes. Nothing here is part of the images."""
