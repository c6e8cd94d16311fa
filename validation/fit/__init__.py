"""Fit the constants of the timing model on calibration rows."""
