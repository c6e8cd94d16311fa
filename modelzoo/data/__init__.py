"""Data processors."""
