"""Streamed training against training that does not stream, on the same cores."""
