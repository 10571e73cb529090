"""The program of a child: everything that imports TensorFlow."""
