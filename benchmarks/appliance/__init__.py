"""Measure an appliance of many users: one answer whatever is done to a job, and nothing lost."""
