"""Parse the command line and run what it asks for."""
