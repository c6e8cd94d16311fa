"""The version that artifacts and checkpoints are stamped with, and the torch of its bits."""

VERSION = "0.2.0"
TORCH = "2.13.0"
"""The release that trains and evaluates, as pyproject.toml has it."""
