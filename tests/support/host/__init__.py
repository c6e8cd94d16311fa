"""Processes, terminals, commands and schedulers of the host."""
