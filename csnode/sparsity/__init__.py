"""Sparse weights on a CS node: what it knows of them, and products from their non-zeros alone."""
