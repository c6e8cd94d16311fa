"""Checkpoints of a run: their folder, their keys, and those written in the background."""
