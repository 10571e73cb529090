"""`trainer import`: a Kubeflow TFJob becomes a job spec; settings without a counterpart are reported."""
