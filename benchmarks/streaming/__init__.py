"""Compare streamed training with training that does not stream, on the same cores."""
