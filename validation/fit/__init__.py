"""Fit the constants of the timing models to calibration rows."""
