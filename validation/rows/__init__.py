"""Read published rows from CSV files."""
