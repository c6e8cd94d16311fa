"""Many requests in one file: what a file has, where files lie, and how lines are answered."""
