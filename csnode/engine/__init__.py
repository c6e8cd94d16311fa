"""Engines: what computes the kernels of a CS node, torch or the wafer in its own order."""
