"""Masks of sparse weights: how they are kept, first made, applied and changed."""
