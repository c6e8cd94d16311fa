"""Workflows, jobs, events, inventory and operations: frozen plain data, no I/O."""
