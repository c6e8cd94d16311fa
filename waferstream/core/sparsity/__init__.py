"""Sparse weights: what a user states, how their non-zeros are placed, sent and stored."""
