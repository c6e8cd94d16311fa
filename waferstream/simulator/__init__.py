"""Simulate a step of the whole cluster on the timing models of its roles."""
