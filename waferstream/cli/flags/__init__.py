"""The flags of the command line: of a run, and of keys of its configuration."""
