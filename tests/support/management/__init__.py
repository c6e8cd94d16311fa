"""Managements that tests run, and what looks at them."""
