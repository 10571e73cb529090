"""The page of a job: its files, its server and its document. The chief serves it, and `trainer ui` from files."""
