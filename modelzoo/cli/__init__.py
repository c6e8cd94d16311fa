"""Flags and entry points."""
