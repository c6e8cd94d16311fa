"""The host of a process: its files and folders, its terminal, signals, and its own code."""
