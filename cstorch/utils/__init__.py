"""Helpers around the training loop."""
