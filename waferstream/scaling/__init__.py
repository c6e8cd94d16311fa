"""Experiments made of several runs: what scripts/ call."""
