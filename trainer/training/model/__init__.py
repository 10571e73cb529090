"""The user's model: built, checked, with its state and its step."""
