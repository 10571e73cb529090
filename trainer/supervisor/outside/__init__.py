"""Requests to servers outside the job."""
