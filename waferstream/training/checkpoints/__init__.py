"""Checkpoints of a run: saved, restored, and pruned at once."""
