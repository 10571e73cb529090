"""The page of a running job."""
