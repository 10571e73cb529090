"""Description of a job: spec, cluster, TF_CONFIG, names, errors. Imports neither TensorFlow nor Jinja."""
