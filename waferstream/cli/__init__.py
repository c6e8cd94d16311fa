"""The command line of run.py."""
