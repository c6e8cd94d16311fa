"""Optimizers and schedules as a user constructs them."""
