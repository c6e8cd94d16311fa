"""Stand-alone commands around the project (README.md)."""
