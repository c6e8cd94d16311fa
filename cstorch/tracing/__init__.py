"""Traced steps: how one is recorded, fitted to the wafer, and run again when its Python changes."""
