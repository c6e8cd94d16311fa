"""Curves over numbers of systems: sweeps, training experiments, GPU clusters to compare with."""
