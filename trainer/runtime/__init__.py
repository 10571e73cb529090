"""What runs in a container: supervisor, rendezvous, and the child that holds TensorFlow."""
