"""Readers of pages, pictures and traces, and made-up results for them."""
