"""Models, data processors, conversions and params files: what ``entry_points.txt`` names."""

from pathlib import Path

PARAMS = Path(__file__).with_name("params")
"""Folder of the params files."""

KEYS = Path(__file__).with_name("keys.json")
"""The keys of models and data processors, written by scripts.reference_pages."""
