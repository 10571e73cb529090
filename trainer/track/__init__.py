"""`trainer track`: keeps the run of a job at an MLflow server, by the files that the job writes."""
