"""Optimizer rules on fp32 masters, one family per file, and gradient clipping."""
