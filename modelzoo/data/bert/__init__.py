"""Samples of encoders: masked words, and tasks of classification."""
