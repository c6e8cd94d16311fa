"""The training program behind run.py."""
