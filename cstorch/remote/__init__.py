"""Tensors that MemoryX holds: weights, optimizer state and buffers, fetched when they are read."""
