"""The loop of parameter_server: closures on the workers, and counters that make each step happen once."""
