"""Errors of the model with and without each of its mechanisms."""
