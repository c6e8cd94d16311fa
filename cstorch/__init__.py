"""What a user writes: backend, compile, trace, closures, optimizers, data."""
