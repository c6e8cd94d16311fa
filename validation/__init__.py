"""Compare predictions with published measurements, and fit constants to calibration rows."""
