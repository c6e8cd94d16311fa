"""``--simulate``: predict training on the emulated machine without running it."""
