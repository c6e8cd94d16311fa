"""What all commands share, above Typer: help, values, errors, output and completion."""
