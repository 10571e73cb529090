"""All uses of private parts of Keras and TensorFlow: the files to read again at an upgrade."""
