"""Forty mistakes that people type, each typed as a user would, and the answers they get."""
