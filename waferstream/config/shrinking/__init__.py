"""Small versions of a params file: every size is scaled, every other key stays."""
