"""Models, data processors, conversions and params files: what ``entry_points.txt`` names."""

from pathlib import Path

PARAMS = Path(__file__).with_name("params")
"""Folder of the params files."""
