"""Parse the command line and run what it asks for."""

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended."""

TERMINATED = 143
"""Exit code of a command that SIGTERM ended."""
