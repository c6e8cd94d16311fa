"""Faults on demand: which role fails when and how, and the shell that makes it fail."""
