"""What the chief's task does in addition: it answers all tasks, leads the rendezvous, and ends the job."""
