"""Emulated costs, machines and published rows."""
