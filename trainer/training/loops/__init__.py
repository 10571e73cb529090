"""One module for each training loop, and for the programs of servers and evaluator."""
