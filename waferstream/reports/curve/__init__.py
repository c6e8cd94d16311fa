"""Curves over numbers of systems: their result, text, tables, pictures and page."""
