"""The program of each task: joins the cluster and manages a child, which trains. Never imports TensorFlow."""
