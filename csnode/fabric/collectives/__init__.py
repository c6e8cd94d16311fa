"""Collectives as programs on the fabric."""
