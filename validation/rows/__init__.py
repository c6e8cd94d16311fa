"""Published measurements: read, check and interpret the rows of validation/data."""
