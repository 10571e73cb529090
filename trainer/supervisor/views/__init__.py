"""What people see of a job: its status, its pace, slow tasks, and its page."""
