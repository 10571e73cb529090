"""`trainer import`: a Kubeflow TFJob becomes a job spec; what has no place in a spec is told."""
