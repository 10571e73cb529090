"""Runs jobs as containers of one Docker Engine."""
