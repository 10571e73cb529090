"""What the child stands on: its pipes, devices and connections, its strategy, and calls of the user's code."""
