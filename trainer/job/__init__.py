"""What a job is: spec, cluster, TF_CONFIG, names, errors. Imports no TensorFlow and no Jinja."""
