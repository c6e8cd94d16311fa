"""Hosts in miniature, for tests and measurements of runs over several hosts."""
