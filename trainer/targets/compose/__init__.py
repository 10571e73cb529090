"""Containers of one Docker Engine."""
