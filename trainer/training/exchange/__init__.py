"""How tasks exchange gradients, averages of weights, and layers' statistics."""
