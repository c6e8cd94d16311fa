"""Data processors by name."""
