"""How a job reads on a terminal: the live table, the summary, and stacks."""
