"""Predict the published rows, one module per family of measurements."""
