"""A running management: its store, its launcher, its manager, its doors and its pages."""
