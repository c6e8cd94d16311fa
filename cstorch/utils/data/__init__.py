"""Loaders that run on input workers, and the executor that drives the loop."""
