"""Parse the command line and run what it asks for."""

UNREAD = 141
"""Exit code of a command that ends because nobody reads what it prints, as after SIGPIPE."""
